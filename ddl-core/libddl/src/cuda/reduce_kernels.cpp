#include "cuda/reduce_kernels.hpp"

#include <algorithm>

#include "cuda/nvrtc.hpp"
#include "support/error.hpp"

namespace ddl::cuda {
namespace {

constexpr unsigned kThreads = 256;
/// Blocks that each of the device's multiprocessors gets.
constexpr unsigned kBlocksEach = 8;
/// Elements of a thread, at least.
constexpr std::size_t kElementsEach = 4;

constexpr std::pair<DDL_Type, const char*> kTypes[] = {
    {DDL_TYPE_FLOAT, "float"},       {DDL_TYPE_DOUBLE, "double"}, {DDL_TYPE_HALF, "half"},
    {DDL_TYPE_BFLOAT16, "bfloat16"}, {DDL_TYPE_INT32, "int32"},   {DDL_TYPE_INT64, "int64"}};
constexpr std::pair<DDL_Op, const char*> kOps[] = {
    {DDL_OP_SUM, "sum"}, {DDL_OP_MIN, "min"}, {DDL_OP_MAX, "max"}, {DDL_OP_PRODUCT, "product"}};

const Nvrtc& nvrtc() {
  const Nvrtc* const opened = Nvrtc::instance();
  if (opened != nullptr) return *opened;
  throw Error(DDL_ERR_DEVICE, Nvrtc::why_not(), Error::kOnThisRank,
              "install NVRTC of CUDA 12, or set DDL_NVRTC_LIBRARY to its libnvrtc.so.12");
}

}  // namespace

std::string ReduceKernels::compiled(int capability) {
  return nvrtc().compiled(kReduceSource, "reduce.cu", capability);
}

std::string ReduceKernels::compiler() { return nvrtc().release(); }

ReduceKernels::ReduceKernels(Device& device, const std::string& code) : device_(device) {
  const Driver& driver = device.driver();
  blocks_ = kBlocksEach * static_cast<unsigned>(std::max(device.attribute(kAttributeMultiprocessors), 1));
  driver.check(driver.module_load(&module_, code.data()), "loading the reductions");
  try {
    for (const auto& [type, type_name] : kTypes) {
      for (const auto& [op, op_name] : kOps) {
        const std::string name = std::string("ddl_") + op_name + "_" + type_name;
        driver.check(driver.module_function(&functions_[{type, op}], module_, name.c_str()),
                     ("looking for " + name).c_str());
      }
    }
  } catch (const Error&) {
    driver.module_unload(module_);
    throw;
  }
}

ReduceKernels::~ReduceKernels() {
  try {
    const Device::Current current(device_);
    device_.driver().module_unload(module_);
  } catch (const Error&) {
    // The device has failed, and its modules are gone with it.
  }
}

void ReduceKernels::launch(DDL_Type type, DDL_Op op, void* out, const Sources& sources, std::size_t count,
                           std::int64_t divisor, Stream stream) const {
  Function const function = functions_.at({type, op == DDL_OP_AVG ? DDL_OP_SUM : op});
  std::int64_t by = op == DDL_OP_AVG ? divisor : 1;
  const std::size_t wanted = (count + kThreads * kElementsEach - 1) / (kThreads * kElementsEach);
  const auto blocks = static_cast<unsigned>(std::clamp<std::size_t>(wanted, 1, blocks_));
  Sources given = sources;
  unsigned long long elements = count;
  void* parameters[] = {&out,        &given.bases, &given.offset, &given.mine,
                        &given.self, &given.n,     &elements,     &by};
  device_.driver().check(device_.driver().launch(function, blocks, 1, 1, kThreads, 1, 1, 0, stream,
                                                 static_cast<void**>(parameters), nullptr),
                         "launching a reduction");
}

void ReduceKernels::launch_all(Stream stream) const {
  for (const auto& [key, function] : functions_) {
    launch(key.first, key.second, nullptr, {0, 0, nullptr, 0, 1}, 0, 1, stream);
  }
}

}  // namespace ddl::cuda
