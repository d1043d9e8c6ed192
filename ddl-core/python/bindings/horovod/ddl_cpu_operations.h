/**
 * @file ddl_cpu_operations.h
 * Horovod's operations on tensors in host memory, by DDL. They stand in front of MPI's, which make what these
 * leave: other process sets, other element types, Adasum, and the operations that DDL has no class for here.
 *
 * All of them run on Horovod's background thread, on which MPI was initialised.
 */
#ifndef HOROVOD_DDL_CPU_OPERATIONS_H
#define HOROVOD_DDL_CPU_OPERATIONS_H

#include <vector>

#include "ddl_calls.h"

namespace horovod {
namespace common {

/// Reduces the tensors of a response where they are: they are not copied into a fusion buffer.
class DDLCPUAllreduce : public AllreduceOp {
 public:
  DDLCPUAllreduce(const DDLProcess* process, HorovodGlobalState* state);
  Status Execute(std::vector<TensorTableEntry>& entries, const Response& response) override;
  bool Enabled(const ParameterManager& parameters, const std::vector<TensorTableEntry>& entries,
               const Response& response) const override;

 private:
  const DDLProcess* const process_;
};

class DDLCPUBroadcast : public BroadcastOp {
 public:
  DDLCPUBroadcast(const DDLProcess* process, HorovodGlobalState* state);
  Status Execute(std::vector<TensorTableEntry>& entries, const Response& response) override;
  bool Enabled(const ParameterManager& parameters, const std::vector<TensorTableEntry>& entries,
               const Response& response) const override;

 private:
  const DDLProcess* const process_;
};

}  // namespace common
}  // namespace horovod

#endif
