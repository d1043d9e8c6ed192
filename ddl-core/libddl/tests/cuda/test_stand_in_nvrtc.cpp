// Kernels on the stand-ins: what NVRTC's makes of them, and how the driver's runs it.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "child_process.hpp"
#include "loaded.hpp"

namespace {

using child_process::eventually;
using loaded::Driver;
using loaded::Nvrtc;

int in_process(const std::function<void()>& body, const child_process::Environment& environment = {}) {
  return child_process::run(environment, body);
}

constexpr const char* kSource = R"(
extern "C" __global__ void put(int* to, const int* from, unsigned long long count, int more) {
  for (unsigned long long i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    to[i] = from[i] + more;
  }
}
)";

struct Compiler : Nvrtc {
  std::string log_text;

  /// The code; "" where it does not compile.
  std::string compiled(const char* source, const char* architecture, bool ptx) {
    NvrtcProgram program = nullptr;
    EXPECT_EQ(create(&program, source, "test.cu", 0, nullptr, nullptr), 0);
    std::string code;
    if (compile(program, 1, &architecture) == 0) {
      std::size_t bytes = 0;
      EXPECT_EQ(ptx ? ptx_size(program, &bytes) : cubin_size(program, &bytes), 0);
      code.resize(bytes);
      EXPECT_EQ(ptx ? this->ptx(program, code.data()) : cubin(program, code.data()), 0);
    }
    std::size_t bytes = 0;
    EXPECT_EQ(log_size(program, &bytes), 0);
    log_text.resize(bytes);
    EXPECT_EQ(log(program, log_text.data()), 0);
    EXPECT_EQ(destroy(&program), 0);
    return code;
  }
};

TEST(StandInNvrtc, KernelsRunLateOnTheDevicesMemory) {
  const auto body = [] {
    Driver driver;
    Driver::Context context = nullptr;
    Driver::Stream stream = nullptr;
    ASSERT_EQ(driver.init(0), 0);
    ASSERT_EQ(driver.primary_retain(&context, 0), 0);
    ASSERT_EQ(driver.context_set(context), 0);
    ASSERT_EQ(driver.stream_create(&stream, ddl::cuda::kStreamNonBlocking, 0), 0);
    Compiler compiler;
    const std::string code = compiler.compiled(kSource, "--gpu-architecture=sm_90", false);
    Driver::Module module = nullptr;
    Driver::Function put = nullptr;
    ASSERT_EQ(driver.module_load(&module, code.data()), 0);
    EXPECT_EQ(driver.module_function(&put, module, "take"), 500);
    ASSERT_EQ(driver.module_function(&put, module, "put"), 0);
    std::vector<int> numbers(5000, 7);
    Driver::DeviceAddress from = 0;
    Driver::DeviceAddress to = 0;
    const std::size_t bytes = numbers.size() * sizeof(int);
    ASSERT_EQ(driver.device_allocate(&from, bytes), 0);
    ASSERT_EQ(driver.device_allocate(&to, bytes), 0);
    EXPECT_EQ(driver.write(from, numbers.data(), bytes), 0);
    unsigned long long count = numbers.size();
    int more = 5;
    void* parameters[] = {&to, &from, &count, &more};
    EXPECT_EQ(driver.stick(stream, 1), 0);
    EXPECT_EQ(driver.launch(put, 3, 1, 1, 128, 1, 1, 0, stream, parameters, nullptr), 0);
    more = 100;  // its value is that of the launch
    EXPECT_EQ(driver.stream_query(stream), ddl::cuda::kNotReady);
    EXPECT_EQ(driver.stick(stream, 0), 0);
    EXPECT_TRUE(eventually([&] { return driver.stream_query(stream) == 0; }));
    EXPECT_EQ(driver.read(to, numbers.data(), bytes), 0);
    EXPECT_EQ(numbers, std::vector<int>(numbers.size(), 12));
    EXPECT_EQ(driver.set("fail_launch", 1), 0);
    EXPECT_EQ(driver.launch(put, 3, 1, 1, 128, 1, 1, 0, stream, parameters, nullptr), 719);
    EXPECT_EQ(driver.module_unload(module), 0);
    EXPECT_EQ(driver.module_unload(module), 400);
    EXPECT_EQ(driver.set("fail_module", 1), 0);
    EXPECT_EQ(driver.module_load(&module, code.data()), 2);
  };
  EXPECT_EQ(in_process(body), 0);
}

/// CUDA loads a kernel when it is launched first, and may wait for all streams then; later launches do not.
TEST(StandInNvrtc, AKernelsFirstLaunchWaitsForAllStreams) {
  const auto body = [](bool launched_before) {
    Driver driver;
    Driver::Context context = nullptr;
    Driver::Stream stream = nullptr;
    Driver::Stream stuck = nullptr;
    ASSERT_EQ(driver.init(0), 0);
    ASSERT_EQ(driver.primary_retain(&context, 0), 0);
    ASSERT_EQ(driver.context_set(context), 0);
    ASSERT_EQ(driver.stream_create(&stream, ddl::cuda::kStreamNonBlocking, 0), 0);
    ASSERT_EQ(driver.stream_create(&stuck, ddl::cuda::kStreamNonBlocking, 0), 0);
    Compiler compiler;
    const std::string code = compiler.compiled(kSource, "--gpu-architecture=sm_90", false);
    Driver::Module module = nullptr;
    Driver::Function put = nullptr;
    ASSERT_EQ(driver.module_load(&module, code.data()), 0);
    ASSERT_EQ(driver.module_function(&put, module, "put"), 0);
    Driver::DeviceAddress memory = 0;
    ASSERT_EQ(driver.device_allocate(&memory, 64), 0);
    void* pinned = nullptr;
    ASSERT_EQ(driver.host_allocate(&pinned, 64, 0), 0);
    unsigned long long none = 0;
    int more = 5;
    void* parameters[] = {&memory, &memory, &none, &more};
    const auto launch = [&] { return driver.launch(put, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr); };
    if (launched_before) {
      EXPECT_EQ(launch(), 0);
    }
    EXPECT_EQ(driver.stick(stuck, 1), 0);
    EXPECT_EQ(driver.copy_to_device(memory, pinned, 64, stuck), 0);
    EXPECT_EQ(launch(), 0);
    EXPECT_TRUE(eventually([&] { return driver.stream_query(stream) == 0; }));
  };
  const child_process::Environment hasty = {{"STAND_IN_PATIENCE_S", "1"}};
  EXPECT_EQ(in_process([&] { body(true); }, hasty), 0);
  EXPECT_EQ(in_process([&] { body(false); }, hasty), 86);
}

TEST(StandInNvrtc, CodeIsForAKindOfGpu) {
  const auto body = [] {
    Driver driver;
    Driver::Context context = nullptr;
    ASSERT_EQ(driver.init(0), 0);
    ASSERT_EQ(driver.primary_retain(&context, 0), 0);
    ASSERT_EQ(driver.context_set(context), 0);
    Compiler compiler;
    Driver::Module module = nullptr;
    const auto load = [&](const char* architecture, bool ptx) {
      return driver.module_load(&module, compiler.compiled(kSource, architecture, ptx).data());
    };
    EXPECT_EQ(load("--gpu-architecture=sm_80", false), 0);
    EXPECT_EQ(load("--gpu-architecture=sm_75", false), 209);
    EXPECT_EQ(load("--gpu-architecture=compute_75", true), 0);
    EXPECT_EQ(load("--gpu-architecture=compute_90", true), 209);
    EXPECT_EQ(driver.module_load(&module, std::string(100, 'x').data()), 218);
  };
  EXPECT_EQ(in_process(body, {{"STAND_IN_CAPABILITY", "86"}}), 0);
}

TEST(StandInNvrtc, WhatIsWrongIsTold) {
  const auto body = [] {
    Compiler compiler;
    EXPECT_EQ(
        compiler.compiled("extern \"C\" __global__ void f() { g(); }", "--gpu-architecture=sm_90", false),
        "");
    EXPECT_NE(compiler.log_text.find("error"), std::string::npos) << compiler.log_text;
    EXPECT_EQ(compiler.compiled(kSource, "--gpu-architecture=sm_100", false), "");
    EXPECT_EQ(compiler.compiled(kSource, "--maxrregcount=32", false), "");
    EXPECT_NE(compiler.log_text.find("unrecognized option"), std::string::npos) << compiler.log_text;
    EXPECT_EQ(Driver().counted("held_programs"), 0U);
  };
  EXPECT_EQ(in_process(body, {{"STAND_IN_NVRTC_NEWEST", "90"}}), 0);
}

}  // namespace
