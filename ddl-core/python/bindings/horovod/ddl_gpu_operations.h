/**
 * @file ddl_gpu_operations.h
 * Horovod's operations on tensors of GPUs, by DDL: compiled where Horovod is for GPUs. They stand in front of
 * NCCL's, which make what these leave, and all where HOROVOD_GPU_OPERATIONS is not ddl.
 *
 * All of them run on Horovod's background thread, and wait there for DDL's call.
 */
#ifndef HOROVOD_DDL_GPU_OPERATIONS_H
#define HOROVOD_DDL_GPU_OPERATIONS_H

#include <vector>

#include "ddl_calls.h"
#include "gpu_operations.h"

namespace horovod {
namespace common {

/// Reduces the tensors of a response where they are: they are not copied into a fusion buffer.
class DDLGPUAllreduce : public GPUAllreduce {
 public:
  DDLGPUAllreduce(const DDLProcess* process, GPUContext* gpu, HorovodGlobalState* state);
  Status Execute(std::vector<TensorTableEntry>& entries, const Response& response) override;
  bool Enabled(const ParameterManager& parameters, const std::vector<TensorTableEntry>& entries,
               const Response& response) const override;

 private:
  const DDLProcess* const process_;
};

class DDLGPUBroadcast : public GPUBroadcast {
 public:
  DDLGPUBroadcast(const DDLProcess* process, GPUContext* gpu, HorovodGlobalState* state);
  Status Execute(std::vector<TensorTableEntry>& entries, const Response& response) override;
  bool Enabled(const ParameterManager& parameters, const std::vector<TensorTableEntry>& entries,
               const Response& response) const override;

 private:
  const DDLProcess* const process_;
};

}  // namespace common
}  // namespace horovod

#endif
