/**
 * @file ddl_calls.h
 * What Horovod's operations by DDL have in common: DDL's start and end, and Horovod's terms in DDL's.
 */
#ifndef HOROVOD_DDL_CALLS_H
#define HOROVOD_DDL_CALLS_H

#include <ddl.h>

#include <string>
#include <vector>

#include "../mpi/mpi_context.h"
#include "collective_operations.h"

namespace horovod {
namespace common {

/// DDL's start and end within Horovod's.
class DDLProcess {
 public:
  /// After MPI's initialisation. Collective. HOROVOD_CPU_OPERATIONS (ddl, mpi; unset: ddl) and
  /// HOROVOD_GPU_OPERATIONS (ddl, nccl; unset: nccl) choose. Where Horovod has not all ranks of the job, DDL
  /// stays out. @throws std::runtime_error with DDL's text
  void Initialize(const MPIContext& mpi_context);
  /// Before the end of MPI. Collective.
  void Finalize();
  /// Whether DDL makes the operations on tensors in host memory.
  bool OnHost() const { return on_host_; }
  /// Whether DDL makes the operations on tensors of GPUs.
  bool OnGPUs() const { return on_gpus_; }

 private:
  bool on_host_ = false;
  bool on_gpus_ = false;
  bool initialized_here_ = false;
};

/// Whether DDL makes an operation on such tensors, apart from where they are. The same answer on all ranks:
/// they have negotiated the type and the process set.
bool DDLTakes(const std::vector<TensorTableEntry>& entries);

/// Of a type that DDLTakes.
DDL_Type DDLTypeOf(DataType type);

/// An all-reduce in DDL's terms.
struct DDLReduction {
  DDL_Op op;
  double before;  ///< by which the input is multiplied
  double after;   ///< by which the result is multiplied
};
/// @param size  ranks of the process set
DDLReduction DDLReductionOf(const Response& response, DataType type, int size);

/// What DDL's errors show, and compares across the ranks.
std::string DDLNameOf(const std::vector<TensorTableEntry>& entries);

Status DDLStatusOf(int code);

}  // namespace common
}  // namespace horovod

#endif
