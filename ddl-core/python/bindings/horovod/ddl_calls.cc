#include "ddl_calls.h"

#include <strings.h>

#include <cstdlib>
#include <ddl.hpp>
#include <stdexcept>

#include "../logging.h"

namespace horovod {
namespace common {
namespace {

/// Each process set but the one of all ranks has another number.
constexpr int kGlobalProcessSet = 0;
constexpr char kGPUOperations[] = "HOROVOD_GPU_OPERATIONS";

bool HasType(DataType type) {
  switch (type) {
    case HOROVOD_FLOAT16:
    case HOROVOD_FLOAT32:
    case HOROVOD_FLOAT64:
    case HOROVOD_INT32:
    case HOROVOD_INT64:
      return true;
    default:
      return false;
  }
}

bool IsFloat(DataType type) {
  return type == HOROVOD_FLOAT16 || type == HOROVOD_FLOAT32 || type == HOROVOD_FLOAT64;
}

/// Whether DDL was chosen for GPUs. @throws std::runtime_error
bool ChosenForGPUs(const char* chosen) {
  if (chosen == nullptr) return false;
  const bool ddl = strcasecmp(chosen, "ddl") == 0;
#if HAVE_GPU
  if (!ddl && strcasecmp(chosen, "nccl") != 0) {
    throw std::runtime_error(std::string(kGPUOperations) + "=" + chosen +
                             " is neither ddl nor nccl; in hvd.init; unset it for nccl");
  }
#else
  if (ddl) {
    throw std::runtime_error(std::string(kGPUOperations) +
                             "=ddl, but this Horovod is built for tensors in host memory; in hvd.init; unset "
                             "it, or use the channel's variant for GPUs");
  }
#endif
  return ddl;
}

}  // namespace

void DDLProcess::Initialize(const MPIContext& mpi_context) {
  const char* const for_host = std::getenv(HOROVOD_CPU_OPERATIONS);
  const char* const for_gpus = std::getenv(kGPUOperations);
  const bool on_host = for_host == nullptr || strcasecmp(for_host, "ddl") == 0;
  const bool on_gpus = ChosenForGPUs(for_gpus);
  if ((!on_host && !on_gpus) || !mpi_context.IsEnabled()) return;
  int relation = MPI_UNEQUAL;
  MPI_Comm_compare(mpi_context.global_comm, MPI_COMM_WORLD, &relation);
  if (relation != MPI_IDENT && relation != MPI_CONGRUENT) {
    const std::string problem =
        "Horovod was initialised with some of the job's ranks, or in another order; in hvd.init; ";
    if (on_gpus || for_host != nullptr) {
      const std::string asked = on_gpus ? std::string(kGPUOperations) + "=" + for_gpus
                                        : "HOROVOD_CPU_OPERATIONS=" + std::string(for_host);
      throw std::runtime_error(problem + "call hvd.init() without comm, or unset " + asked);
    }
    int rank = 0;
    MPI_Comm_rank(mpi_context.global_comm, &rank);
    if (rank == 0) LOG(WARNING) << problem << "MPI reduces in place of DDL";
    return;
  }
  int running = 0;
  ddl_initialized(&running);
  if (ddl_init() != DDL_SUCCESS) throw std::runtime_error(ddl_last_error());
  initialized_here_ = running == 0;
  on_host_ = on_host;
  on_gpus_ = on_gpus;
}

void DDLProcess::Finalize() {
  if (initialized_here_ && ddl_finalize() != DDL_SUCCESS) LOG(ERROR) << ddl_last_error();
  on_host_ = on_gpus_ = initialized_here_ = false;
}

bool DDLTakes(const std::vector<TensorTableEntry>& entries) {
  const TensorTableEntry& first = entries[0];
  return first.process_set_id == kGlobalProcessSet && HasType(first.tensor->dtype());
}

DDL_Type DDLTypeOf(DataType type) {
  switch (type) {
    case HOROVOD_FLOAT16:
      return DDL_TYPE_HALF;
    case HOROVOD_FLOAT32:
      return DDL_TYPE_FLOAT;
    case HOROVOD_FLOAT64:
      return DDL_TYPE_DOUBLE;
    case HOROVOD_INT32:
      return DDL_TYPE_INT32;
    case HOROVOD_INT64:
      return DDL_TYPE_INT64;
    default:
      throw std::logic_error("DDL does not reduce " + DataType_Name(type));
  }
}

DDLReduction DDLReductionOf(const Response& response, DataType type, int size) {
  DDLReduction made{DDL_OP_SUM, response.prescale_factor(), response.postscale_factor()};
  switch (response.reduce_op()) {
    case ReduceOp::SUM:
      break;
    case ReduceOp::AVERAGE:
      if (IsFloat(type) && made.after == 1.0) {
        made.op = DDL_OP_AVG;
      } else {
        made.after /= size;
      }
      break;
    case ReduceOp::MIN:
      made.op = DDL_OP_MIN;
      break;
    case ReduceOp::MAX:
      made.op = DDL_OP_MAX;
      break;
    case ReduceOp::PRODUCT:
      made.op = DDL_OP_PRODUCT;
      break;
    default:
      throw std::logic_error("Reduction op type not supported.");
  }
  return made;
}

std::string DDLNameOf(const std::vector<TensorTableEntry>& entries) {
  std::string names;
  for (const TensorTableEntry& entry : entries) names += (names.empty() ? "" : "\n") + entry.tensor_name;
  return names;
}

Status DDLStatusOf(int code) {
  return code == DDL_SUCCESS ? Status::OK() : Status::UnknownError(ddl_last_error());
}

}  // namespace common
}  // namespace horovod
