// Runs DDL's operations for Horovod on memory of a device, two ranks of them.
#include <stdlib.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <stdexcept>

#include "../../../../libddl/tests/cuda/stand_in.hpp"
#include "ops/ddl_gpu_operations.h"

namespace ddl::cuda {

#define F(member, symbol, parameters) extern "C" Status driver_##member parameters __asm__(symbol);
DDL_CUDA_DRIVER_FUNCTIONS(F)
#undef F

}  // namespace ddl::cuda

namespace horovod {
namespace common {
namespace {

using namespace ddl::cuda;

void Require(bool fine, const std::string& what) {
  if (!fine) throw std::runtime_error(what);
}
DeviceAddress AddressOf(const void* data) {
  return static_cast<DeviceAddress>(reinterpret_cast<uintptr_t>(data));
}

template <typename T>
std::vector<T> Read(const void* data, int64_t elements) {
  Require(stand_in_synchronize(60) == 0, "streams do not come to an end");
  std::vector<T> values(elements);
  Require(stand_in_read(AddressOf(data), values.data(), elements * sizeof(T)) == 0,
          "no memory of the device");
  return values;
}

template <typename T>
void Scale(const void* from, void* to, int64_t elements, double factor) {
  std::vector<T> values = Read<T>(from, elements);
  for (T& value : values) value = static_cast<T>(value * factor);
  Require(stand_in_write(AddressOf(to), values.data(), elements * sizeof(T)) == 0, "no memory of the device");
}

}  // namespace

void GPUContext::MemcpyAsyncD2D(void* to, const void* from, size_t bytes, gpuStream_t on) {
  Require(driver_copy_within(AddressOf(to), AddressOf(from), bytes, on) == kSuccess, "the copy failed");
}

void GPUContext::ScaleBufferImpl(const void* from, void* to, int64_t elements, double factor, DataType type,
                                 gpuStream_t) {
  if (type == HOROVOD_FLOAT32) return Scale<float>(from, to, elements, factor);
  Require(type == HOROVOD_INT32, "not scaled here");
  Scale<int32_t>(from, to, elements, factor);
}

namespace {

struct Fixture {
  HorovodGlobalState state;
  GPUContext gpu;
  DDLProcess process;
  DDLGPUAllreduce allreduce{&process, &gpu, &state};
  DDLGPUBroadcast broadcast{&process, &gpu, &state};
  int rank = 0, size = 0;

  template <typename T>
  std::shared_ptr<Tensor> Make(DataType type, const std::vector<T>& values) {
    const size_t bytes = values.size() * sizeof(T);
    DeviceAddress at = 0, late = 0;
    Require(driver_device_allocate(&at, bytes) == kSuccess, "no memory");
    Require(driver_device_allocate(&late, bytes) == kSuccess, "no memory");
    Require(stand_in_write(late, values.data(), bytes) == 0, "no memory of the device");
    // The stream comes to it after the operation was called.
    Require(driver_copy_within(at, late, bytes, gpu.stream) == kSuccess, "the copy failed");
    void* const address = reinterpret_cast<void*>(static_cast<uintptr_t>(at));
    return std::make_shared<Tensor>(Tensor{type, static_cast<int64_t>(values.size()), bytes, address});
  }

  template <typename T>
  TensorTableEntry Entry(DataType type, const std::vector<T>& values, bool in_place) {
    TensorTableEntry entry;
    entry.tensor_name = "tensor of " + std::to_string(values.size());
    entry.tensor = Make(type, values);
    entry.output = in_place ? entry.tensor : Make(type, std::vector<T>(values.size()));
    return entry;
  }

  /// Of fused tensors whose elements are what `mine` says for a rank; the results are to be `wanted`.
  template <typename T>
  void Reduce(DataType type, const Response& response, const std::function<T(int)>& mine, T wanted) {
    std::vector<TensorTableEntry> entries;
    for (const int length : {5000, 1, 70000}) {
      entries.push_back(Entry(type, std::vector<T>(length, mine(rank)), length == 1));
    }
    Require(allreduce.Enabled({}, entries, response), "not for DDL");
    const Status status = allreduce.Execute(entries, response);
    Require(status.ok(), status.reason());
    for (const TensorTableEntry& entry : entries) {
      for (const T value : Read<T>(entry.output->data(), entry.output->elements)) {
        Require(value == wanted, entry.tensor_name + " has " + std::to_string(value));
      }
      if (entry.output == entry.tensor) continue;
      for (const T value : Read<T>(entry.tensor->data(), entry.tensor->elements)) {
        Require(value == mine(rank), "the input has changed");
      }
    }
  }
};

void Run(Fixture& all) {
  Require(!getenv("HOROVOD_GPU_OPERATIONS"), "set by the test");
  setenv("HOROVOD_GPU_OPERATIONS", "gloo", 1);
  try {
    all.process.Initialize(MPIContext{});
    throw std::logic_error("gloo was taken");
  } catch (const std::runtime_error& error) {
    Require(std::strstr(error.what(), "neither ddl nor nccl"), error.what());
  }
  setenv("HOROVOD_GPU_OPERATIONS", "DDL", 1);
  all.process.Initialize(MPIContext{});
  MPI_Comm_rank(MPI_COMM_WORLD, &all.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &all.size);
  all.state.process_set_table.all.controller = std::make_shared<Controller>(Controller{all.rank, all.size});

  Response sum, average, least, most, scaled;
  average.op = ReduceOp::AVERAGE;
  least.op = ReduceOp::MIN;
  most.op = ReduceOp::MAX;
  scaled.before = 0.5;
  scaled.after = 6.0;
  // of two ranks
  const auto odd = [](int rank) { return 2 * rank + 1; };
  all.Reduce<float>(HOROVOD_FLOAT32, sum, odd, 4);
  all.Reduce<float>(HOROVOD_FLOAT32, average, odd, 2);
  all.Reduce<float>(HOROVOD_FLOAT32, least, odd, 1);
  all.Reduce<float>(HOROVOD_FLOAT32, most, odd, 3);
  all.Reduce<float>(HOROVOD_FLOAT32, scaled, odd, 12);
  all.Reduce<double>(HOROVOD_FLOAT64, average, odd, 2);
  all.Reduce<int32_t>(HOROVOD_INT32, average, odd, 2);
  all.Reduce<int64_t>(HOROVOD_INT64, most, odd, 3);
  // 1 + 2 = 3, and their mean, as IEEE's halves
  const auto half = [](int rank) { return rank == 0 ? 0x3C00 : 0x4000; };
  all.Reduce<uint16_t>(HOROVOD_FLOAT16, sum, half, 0x4200);
  all.Reduce<uint16_t>(HOROVOD_FLOAT16, average, half, 0x3E00);

  std::vector<TensorTableEntry> entries = {
      all.Entry(HOROVOD_INT32, std::vector<int32_t>(3000, 10 + all.rank), false)};
  entries[0].root_rank = 1;
  if (all.rank == 1) entries[0].output = nullptr;
  const Status sent = all.broadcast.Execute(entries, sum);
  Require(sent.ok(), sent.reason());
  const auto& got = all.rank == 1 ? entries[0].tensor : entries[0].output;
  for (const int32_t value : Read<int32_t>(got->data(), 3000)) Require(value == 11, "not what the root has");

  // what others make
  entries[0].process_set_id = 3;
  Require(!all.allreduce.Enabled({}, entries, sum) && !all.broadcast.Enabled({}, entries, sum),
          "process set");
  entries[0].process_set_id = 0;
  entries[0].device = CPU_DEVICE_ID;
  Require(!all.allreduce.Enabled({}, entries, sum) && !all.broadcast.Enabled({}, entries, sum), "host");
  entries = {all.Entry(HOROVOD_UINT8, std::vector<uint8_t>(8), true)};
  Require(!all.allreduce.Enabled({}, entries, sum) && !all.broadcast.Enabled({}, entries, sum), "type");

  entries = {all.Entry(HOROVOD_FLOAT32, std::vector<float>(100 + all.rank), true)};
  const Status refused = all.allreduce.Execute(entries, sum);
  Require(!refused.ok() && refused.reason().find("DDL-1-7") != std::string::npos &&
              refused.reason().find("tensor of 10") != std::string::npos,
          "an error was expected: " + refused.reason());
  all.process.Finalize();
  Require(!all.process.OnGPUs(), "after the end");
}

}  // namespace
}  // namespace common
}  // namespace horovod

int main() {
  using namespace horovod::common;
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  // Each rank has a device of its own where there are several, as ddlrun does it.
  if (std::string(getenv("STAND_IN_DEVICES")) != "1") {
    setenv("CUDA_VISIBLE_DEVICES", getenv("OMPI_COMM_WORLD_LOCAL_RANK"), 1);
  }
  Context context = nullptr;
  driver_init(0);
  driver_primary_retain(&context, 0);
  driver_context_set(context);
  static Fixture all;
  driver_stream_create(&all.gpu.stream, kStreamNonBlocking, 0);
  try {
    Run(all);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", all.rank, error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  std::printf("passed all\n");
}
