#include "ddl_cpu_operations.h"

#include <cstring>

namespace horovod {
namespace common {
namespace {

constexpr char kCopyIn[] = "MEMCPY_TO_OUTPUT";
constexpr char kAllreduce[] = "DDL_ALLREDUCE";
constexpr char kBroadcast[] = "DDL_BCAST";

}  // namespace

DDLCPUAllreduce::DDLCPUAllreduce(const DDLProcess* process, HorovodGlobalState* state)
    : AllreduceOp(state), process_(process) {}

bool DDLCPUAllreduce::Enabled(const ParameterManager&, const std::vector<TensorTableEntry>& entries,
                              const Response&) const {
  return process_->OnHost() && entries[0].device == CPU_DEVICE_ID && DDLTakes(entries);
}

Status DDLCPUAllreduce::Execute(std::vector<TensorTableEntry>& entries, const Response& response) {
  WaitForData(entries);
  const DataType type = entries[0].tensor->dtype();
  const int size = global_state_->process_set_table.Get(entries[0].process_set_id).controller->GetSize();
  const DDLReduction reduction = DDLReductionOf(response, type, size);

  auto& timeline = global_state_->timeline;
  timeline.ActivityStartAll(entries, kCopyIn);
  std::vector<void*> buffers;
  std::vector<size_t> counts;
  for (auto& entry : entries) {
    void* const output = const_cast<void*>(entry.output->data());
    const auto count = entry.tensor->shape().num_elements();
    if (reduction.before != 1.0) {
      ScaleBuffer(reduction.before, entries, entry.tensor->data(), output, count);
    } else if (entry.tensor->data() != output && count > 0) {
      std::memcpy(output, entry.tensor->data(), entry.tensor->size());
    }
    buffers.push_back(output);
    counts.push_back(static_cast<size_t>(count));
  }
  timeline.ActivityEndAll(entries);

  timeline.ActivityStartAll(entries, kAllreduce);
  const int code = ddl_allreduce_n(buffers.data(), counts.data(), buffers.size(), DDLTypeOf(type),
                                   reduction.op, DDLNameOf(entries).c_str());
  timeline.ActivityEndAll(entries);
  if (code != DDL_SUCCESS) return DDLStatusOf(code);

  if (reduction.after != 1.0) {
    for (size_t i = 0; i < buffers.size(); ++i) {
      ScaleBuffer(reduction.after, entries, buffers[i], buffers[i], static_cast<int64_t>(counts[i]));
    }
  }
  return Status::OK();
}

DDLCPUBroadcast::DDLCPUBroadcast(const DDLProcess* process, HorovodGlobalState* state)
    : BroadcastOp(state), process_(process) {}

bool DDLCPUBroadcast::Enabled(const ParameterManager&, const std::vector<TensorTableEntry>& entries,
                              const Response&) const {
  return process_->OnHost() && entries[0].device == CPU_DEVICE_ID && DDLTakes(entries);
}

Status DDLCPUBroadcast::Execute(std::vector<TensorTableEntry>& entries, const Response&) {
  WaitForData(entries);
  const TensorTableEntry& entry = entries[0];
  // The root's output may be another tensor, or none: it sends what it was given.
  const int rank = global_state_->process_set_table.Get(entry.process_set_id).controller->GetRank();
  const auto& tensor = rank == entry.root_rank ? entry.tensor : entry.output;
  auto& timeline = global_state_->timeline;
  timeline.ActivityStartAll(entries, kBroadcast);
  const int code = ddl_broadcast(
      const_cast<void*>(tensor->data()), static_cast<size_t>(entry.tensor->shape().num_elements()),
      DDLTypeOf(entry.tensor->dtype()), entry.root_rank, entry.tensor_name.c_str());
  timeline.ActivityEndAll(entries);
  return DDLStatusOf(code);
}

}  // namespace common
}  // namespace horovod
