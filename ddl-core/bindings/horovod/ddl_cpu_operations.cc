#include "ddl_cpu_operations.h"

#include <strings.h>

#include <cstdlib>
#include <cstring>
#include <ddl.hpp>
#include <stdexcept>
#include <string>

#include "../logging.h"

namespace horovod {
namespace common {
namespace {

/// Each process set but the one of all ranks has another number.
constexpr int kGlobalProcessSet = 0;
constexpr char kCopyIn[] = "MEMCPY_TO_OUTPUT";
constexpr char kAllreduce[] = "DDL_ALLREDUCE";
constexpr char kBroadcast[] = "DDL_BCAST";

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

DDL_Type TypeOf(DataType type) {
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

bool IsFloat(DataType type) {
  return type == HOROVOD_FLOAT16 || type == HOROVOD_FLOAT32 || type == HOROVOD_FLOAT64;
}

/// The same answer on all ranks: they have negotiated the type, the device and the process set.
bool InReach(const std::vector<TensorTableEntry>& entries) {
  const TensorTableEntry& first = entries[0];
  return first.device == CPU_DEVICE_ID && first.process_set_id == kGlobalProcessSet &&
         HasType(first.tensor->dtype());
}

/// What DDL's errors show, and compares across the ranks.
std::string NameOf(const std::vector<TensorTableEntry>& entries) {
  const std::string& first = entries[0].tensor_name;
  return entries.size() == 1 ? first : first + " and " + std::to_string(entries.size() - 1) + " more";
}

Status StatusOf(int code) {
  return code == DDL_SUCCESS ? Status::OK() : Status::UnknownError(ddl_last_error());
}

}  // namespace

void DDLCPUContext::Initialize(const MPIContext& mpi_context) {
  const char* const chosen = std::getenv(HOROVOD_CPU_OPERATIONS);
  if ((chosen != nullptr && strcasecmp(chosen, "ddl") != 0) || !mpi_context.IsEnabled()) return;
  int relation = MPI_UNEQUAL;
  MPI_Comm_compare(mpi_context.global_comm, MPI_COMM_WORLD, &relation);
  if (relation != MPI_IDENT && relation != MPI_CONGRUENT) {
    const std::string problem =
        "Horovod was initialised with some of the job's ranks, or in another order; in hvd.init; ";
    if (chosen != nullptr) {
      throw std::runtime_error(problem +
                               "call hvd.init() without comm, or unset HOROVOD_CPU_OPERATIONS=" + chosen);
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
  enabled_ = true;
}

void DDLCPUContext::Finalize() {
  if (initialized_here_ && ddl_finalize() != DDL_SUCCESS) LOG(ERROR) << ddl_last_error();
  enabled_ = false;
  initialized_here_ = false;
}

DDLCPUAllreduce::DDLCPUAllreduce(const DDLCPUContext* context, HorovodGlobalState* state)
    : AllreduceOp(state), context_(context) {}

bool DDLCPUAllreduce::Enabled(const ParameterManager&, const std::vector<TensorTableEntry>& entries,
                              const Response&) const {
  return context_->Enabled() && InReach(entries);
}

Status DDLCPUAllreduce::Execute(std::vector<TensorTableEntry>& entries, const Response& response) {
  WaitForData(entries);
  const DataType type = entries[0].tensor->dtype();
  const double before = response.prescale_factor();
  double after = response.postscale_factor();
  DDL_Op op = DDL_OP_SUM;
  switch (response.reduce_op()) {
    case ReduceOp::SUM:
      break;
    case ReduceOp::AVERAGE:
      if (IsFloat(type) && after == 1.0) {
        op = DDL_OP_AVG;
      } else {
        after /= global_state_->process_set_table.Get(kGlobalProcessSet).controller->GetSize();
      }
      break;
    case ReduceOp::MIN:
      op = DDL_OP_MIN;
      break;
    case ReduceOp::MAX:
      op = DDL_OP_MAX;
      break;
    case ReduceOp::PRODUCT:
      op = DDL_OP_PRODUCT;
      break;
    default:
      throw std::logic_error("Reduction op type not supported.");
  }

  auto& timeline = global_state_->timeline;
  timeline.ActivityStartAll(entries, kCopyIn);
  std::vector<void*> buffers;
  std::vector<size_t> counts;
  for (auto& entry : entries) {
    void* const output = const_cast<void*>(entry.output->data());
    const auto count = entry.tensor->shape().num_elements();
    if (before != 1.0) {
      ScaleBuffer(before, entries, entry.tensor->data(), output, count);
    } else if (entry.tensor->data() != output && count > 0) {
      std::memcpy(output, entry.tensor->data(), entry.tensor->size());
    }
    buffers.push_back(output);
    counts.push_back(static_cast<size_t>(count));
  }
  timeline.ActivityEndAll(entries);

  timeline.ActivityStartAll(entries, kAllreduce);
  const int code = ddl_allreduce_n(buffers.data(), counts.data(), buffers.size(), TypeOf(type), op,
                                   NameOf(entries).c_str());
  timeline.ActivityEndAll(entries);
  if (code != DDL_SUCCESS) return StatusOf(code);

  if (after != 1.0) {
    for (size_t i = 0; i < buffers.size(); ++i) {
      ScaleBuffer(after, entries, buffers[i], buffers[i], static_cast<int64_t>(counts[i]));
    }
  }
  return Status::OK();
}

DDLCPUBroadcast::DDLCPUBroadcast(const DDLCPUContext* context, HorovodGlobalState* state)
    : BroadcastOp(state), context_(context) {}

bool DDLCPUBroadcast::Enabled(const ParameterManager&, const std::vector<TensorTableEntry>& entries,
                              const Response&) const {
  return context_->Enabled() && InReach(entries);
}

Status DDLCPUBroadcast::Execute(std::vector<TensorTableEntry>& entries, const Response&) {
  WaitForData(entries);
  const TensorTableEntry& entry = entries[0];
  // The root's output may be another tensor, or none: it sends what it was given.
  const int rank = global_state_->process_set_table.Get(kGlobalProcessSet).controller->GetRank();
  const auto& tensor = rank == entry.root_rank ? entry.tensor : entry.output;
  auto& timeline = global_state_->timeline;
  timeline.ActivityStartAll(entries, kBroadcast);
  const int code = ddl_broadcast(const_cast<void*>(tensor->data()),
                                 static_cast<size_t>(entry.tensor->shape().num_elements()),
                                 TypeOf(entry.tensor->dtype()), entry.root_rank, entry.tensor_name.c_str());
  timeline.ActivityEndAll(entries);
  return StatusOf(code);
}

}  // namespace common
}  // namespace horovod
