// What DDL's operations for Horovod need of Horovod, in place of its headers: a host for them that is small
// enough to be compiled in a test. Memory and streams are those of ../../cuda's stand-in for the driver.
// test_horovod_gpu_backend.py compiles the operations with Horovod's own headers, too.
#pragma once

#include <mpi.h>

#include <iostream>
#include <memory>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "cuda/driver_functions.hpp"

#define HAVE_GPU 1
#define CPU_DEVICE_ID (-1)
#define HOROVOD_CPU_OPERATIONS "HOROVOD_CPU_OPERATIONS"
#define LOG(level) std::cerr

namespace horovod {
namespace common {

using gpuStream_t = ddl::cuda::Stream;

enum DataType {
  HOROVOD_UINT8,
  HOROVOD_INT32,
  HOROVOD_INT64,
  HOROVOD_FLOAT16,
  HOROVOD_FLOAT32,
  HOROVOD_FLOAT64
};
inline std::string DataType_Name(DataType type) { return std::to_string(type); }
enum class ReduceOp { AVERAGE, SUM, ADASUM, MIN, MAX, PRODUCT };

class Status {
 public:
  static Status OK() { return Status(true, ""); }
  static Status UnknownError(const std::string& reason) { return Status(false, reason); }
  bool ok() const { return ok_; }
  const std::string& reason() const { return reason_; }

 private:
  Status(bool ok, std::string reason) : ok_(ok), reason_(std::move(reason)) {}
  bool ok_;
  std::string reason_;
};

struct MPIContext {
  MPI_Comm global_comm = MPI_COMM_WORLD;
  bool IsEnabled() const { return true; }
};

struct TensorShape {
  int64_t elements;
  int64_t num_elements() const { return elements; }
};

struct Tensor {
  DataType type;
  int64_t elements;
  size_t bytes;
  void* address;
  DataType dtype() const { return type; }
  TensorShape shape() const { return {elements}; }
  const void* data() const { return address; }
  size_t size() const { return bytes; }
};

struct TensorTableEntry {
  std::string tensor_name;
  std::shared_ptr<Tensor> tensor;
  std::shared_ptr<Tensor> output;
  int root_rank = 0;
  int device = 0;
  int process_set_id = 0;
};

struct Response {
  ReduceOp op = ReduceOp::SUM;
  double before = 1.0, after = 1.0;
  ReduceOp reduce_op() const { return op; }
  double prescale_factor() const { return before; }
  double postscale_factor() const { return after; }
};

struct Controller {
  int rank, size;
  int GetRank() const { return rank; }
  int GetSize() const { return size; }
};
struct ProcessSet {
  std::shared_ptr<Controller> controller;
};
struct ProcessSetTable {
  ProcessSet all;
  ProcessSet& Get(int) { return all; }
};
struct Timeline {
  bool Initialized() const { return true; }
};
struct HorovodGlobalState {
  ProcessSetTable process_set_table;
  Timeline timeline;
};
struct ParameterManager {};

using Events = std::queue<std::string>;

/// The work that is queued on a stream is late, as on a GPU.
class GPUContext {
 public:
  gpuStream_t stream = nullptr;
  std::vector<std::string> recorded;
  void RecordEvent(Events&, const std::string& name, gpuStream_t) { recorded.push_back(name); }
  void MemcpyAsyncD2D(void* to, const void* from, size_t bytes, gpuStream_t on);
  /// As Horovod's kernel, but the host waits.
  void ScaleBufferImpl(const void* from, void* to, int64_t elements, double factor, DataType type,
                       gpuStream_t on);
};

struct GPUOpContext {
  GPUContext* context;
  gpuStream_t* stream = nullptr;
  Events event_queue;
  void InitGPU(const std::vector<TensorTableEntry>&) {}
  void InitGPUQueue(const std::vector<TensorTableEntry>&, const Response&) { stream = &context->stream; }
  Status FinalizeGPUQueue(std::vector<TensorTableEntry>&) { return Status::OK(); }
};

class GPUOp {
 public:
  GPUOp(GPUContext* context, HorovodGlobalState* state)
      : global_state_(state), gpu_context_(context), gpu_op_context_{context} {}
  virtual ~GPUOp() = default;
  virtual Status Execute(std::vector<TensorTableEntry>& entries, const Response& response) = 0;
  virtual bool Enabled(const ParameterManager&, const std::vector<TensorTableEntry>& entries,
                       const Response&) const {
    return entries[0].device != CPU_DEVICE_ID;
  }

 protected:
  void WaitForData(std::vector<TensorTableEntry>&) {}
  void ScaleBuffer(double factor, const std::vector<TensorTableEntry>& entries, const void* from, void* to,
                   int64_t elements) {
    const DataType type = entries[0].tensor->dtype();
    gpu_context_->ScaleBufferImpl(from, to, elements, factor, type, *gpu_op_context_.stream);
  }
  HorovodGlobalState* global_state_;
  GPUContext* gpu_context_;
  GPUOpContext gpu_op_context_;
};
using GPUAllreduce = GPUOp;
using GPUBroadcast = GPUOp;

}  // namespace common
}  // namespace horovod
