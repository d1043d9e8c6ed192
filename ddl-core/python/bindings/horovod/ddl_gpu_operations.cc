#include "ddl_gpu_operations.h"

#include <string>

namespace horovod {
namespace common {
namespace {

constexpr char kCopyIn[] = "MEMCPY_TO_OUTPUT";
constexpr char kAllreduce[] = "DDL_ALLREDUCE";
constexpr char kBroadcast[] = "DDL_BCAST";

/// Of buffers in memory of the entries' GPU, after what was put on the stream.
DDL_Call CallOn(gpuStream_t stream, DDL_Collective collective, const std::vector<void*>& buffers,
                const std::vector<size_t>& counts, DDL_Type type, const std::string& name) {
  DDL_Call call{};
  call.size = sizeof call;
  call.collective = collective;
  call.memory = DDL_MEMORY_CUDA;
  call.stream = stream;
  call.bufs = buffers.data();
  call.counts = counts.data();
  call.n = buffers.size();
  call.type = type;
  call.name = name.c_str();
  return call;
}

}  // namespace

DDLGPUAllreduce::DDLGPUAllreduce(const DDLProcess* process, GPUContext* gpu, HorovodGlobalState* state)
    : GPUAllreduce(gpu, state), process_(process) {}

bool DDLGPUAllreduce::Enabled(const ParameterManager& parameters,
                              const std::vector<TensorTableEntry>& entries, const Response& response) const {
  return process_->OnGPUs() && GPUAllreduce::Enabled(parameters, entries, response) && DDLTakes(entries);
}

Status DDLGPUAllreduce::Execute(std::vector<TensorTableEntry>& entries, const Response& response) {
  gpu_op_context_.InitGPU(entries);
  gpu_op_context_.InitGPUQueue(entries, response);
  WaitForData(entries);
  gpuStream_t& stream = *gpu_op_context_.stream;
  const DataType type = entries[0].tensor->dtype();
  const int size = global_state_->process_set_table.Get(entries[0].process_set_id).controller->GetSize();
  const DDLReduction reduction = DDLReductionOf(response, type, size);

  std::vector<void*> buffers;
  std::vector<size_t> counts;
  for (auto& entry : entries) {
    void* const output = const_cast<void*>(entry.output->data());
    const auto count = entry.tensor->shape().num_elements();
    if (reduction.before != 1.0) {
      ScaleBuffer(reduction.before, entries, entry.tensor->data(), output, count);
    } else if (entry.tensor->data() != output && count > 0) {
      gpu_context_->MemcpyAsyncD2D(output, entry.tensor->data(), entry.tensor->size(), stream);
    }
    buffers.push_back(output);
    counts.push_back(static_cast<size_t>(count));
  }
  auto& timeline = global_state_->timeline;
  if (timeline.Initialized()) gpu_context_->RecordEvent(gpu_op_context_.event_queue, kCopyIn, stream);

  const std::string name = DDLNameOf(entries);
  DDL_Call call = CallOn(stream, DDL_ALLREDUCE, buffers, counts, DDLTypeOf(type), name);
  call.op = reduction.op;
  const int code = ddl_call(&call);
  if (code != DDL_SUCCESS) return DDLStatusOf(code);
  if (timeline.Initialized()) gpu_context_->RecordEvent(gpu_op_context_.event_queue, kAllreduce, stream);

  if (reduction.after != 1.0) {
    for (size_t i = 0; i < buffers.size(); ++i) {
      ScaleBuffer(reduction.after, entries, buffers[i], buffers[i], static_cast<int64_t>(counts[i]));
    }
  }
  return gpu_op_context_.FinalizeGPUQueue(entries);
}

DDLGPUBroadcast::DDLGPUBroadcast(const DDLProcess* process, GPUContext* gpu, HorovodGlobalState* state)
    : GPUBroadcast(gpu, state), process_(process) {}

bool DDLGPUBroadcast::Enabled(const ParameterManager& parameters,
                              const std::vector<TensorTableEntry>& entries, const Response& response) const {
  return process_->OnGPUs() && GPUBroadcast::Enabled(parameters, entries, response) && DDLTakes(entries);
}

Status DDLGPUBroadcast::Execute(std::vector<TensorTableEntry>& entries, const Response& response) {
  gpu_op_context_.InitGPU(entries);
  gpu_op_context_.InitGPUQueue(entries, response);
  WaitForData(entries);
  gpuStream_t& stream = *gpu_op_context_.stream;
  const TensorTableEntry& entry = entries[0];
  // The root's output may be another tensor, or none: it sends what it was given.
  const int rank = global_state_->process_set_table.Get(entry.process_set_id).controller->GetRank();
  const auto& tensor = rank == entry.root_rank ? entry.tensor : entry.output;
  const std::vector<void*> buffers = {const_cast<void*>(tensor->data())};
  const std::vector<size_t> counts = {static_cast<size_t>(entry.tensor->shape().num_elements())};
  DDL_Call call =
      CallOn(stream, DDL_BROADCAST, buffers, counts, DDLTypeOf(entry.tensor->dtype()), entry.tensor_name);
  call.root = entry.root_rank;
  const int code = ddl_call(&call);
  if (code != DDL_SUCCESS) return DDLStatusOf(code);
  if (global_state_->timeline.Initialized()) {
    gpu_context_->RecordEvent(gpu_op_context_.event_queue, kBroadcast, stream);
  }
  return gpu_op_context_.FinalizeGPUQueue(entries);
}

}  // namespace common
}  // namespace horovod
