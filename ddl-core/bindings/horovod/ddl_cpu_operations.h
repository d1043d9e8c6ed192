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

#include "../mpi/mpi_context.h"
#include "collective_operations.h"

namespace horovod {
namespace common {

/// DDL's start and end within Horovod's.
class DDLCPUContext {
 public:
  /// After MPI's initialisation. Collective. With HOROVOD_CPU_OPERATIONS=mpi, or where Horovod has not all
  /// ranks of the job, DDL stays out. @throws std::runtime_error with DDL's text
  void Initialize(const MPIContext& mpi_context);
  /// Before the end of MPI. Collective.
  void Finalize();
  bool Enabled() const { return enabled_; }

 private:
  bool enabled_ = false;
  bool initialized_here_ = false;
};

/// Reduces the tensors of a response where they are: they are not copied into a fusion buffer.
class DDLCPUAllreduce : public AllreduceOp {
 public:
  DDLCPUAllreduce(const DDLCPUContext* context, HorovodGlobalState* state);
  Status Execute(std::vector<TensorTableEntry>& entries, const Response& response) override;
  bool Enabled(const ParameterManager& parameters, const std::vector<TensorTableEntry>& entries,
               const Response& response) const override;

 private:
  const DDLCPUContext* const context_;
};

class DDLCPUBroadcast : public BroadcastOp {
 public:
  DDLCPUBroadcast(const DDLCPUContext* context, HorovodGlobalState* state);
  Status Execute(std::vector<TensorTableEntry>& entries, const Response& response) override;
  bool Enabled(const ParameterManager& parameters, const std::vector<TensorTableEntry>& entries,
               const Response& response) const override;

 private:
  const DDLCPUContext* const context_;
};

}  // namespace common
}  // namespace horovod

#endif
