#include "cuda/nccl.hpp"

#include "cuda/dynamic_library.hpp"
#include "support/error.hpp"

namespace ddl::cuda {
namespace {

constexpr const char* kNcclLibrary = "libnccl.so.2";

}  // namespace

std::string nccl_version_text(int version) {
  // Up to 2.8 a release had four digits.
  if (version < 10000) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 100) + "." +
           std::to_string(version % 100);
  }
  return std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) + "." +
         std::to_string(version % 100);
}

std::string Nccl::open() {
  DynamicLibrary library = DynamicLibrary::chosen("DDL_NCCL_LIBRARY", kNcclLibrary);
  if (!library.open()) return "NCCL is not there: " + library.why_not();
  found_ = true;
  if (!library.find(version, "ncclGetVersion") || version(&release) != kNcclSuccess) {
    return library.name() + " is no NCCL";
  }
  const int major = release < 10000 ? release / 1000 : release / 10000;
  if (major != kNcclMajor || release < kNcclLeastVersion) {
    return "NCCL is of release " + nccl_version_text(release) +
           ", but DDL works with 2.18 and later ones of NCCL 2";
  }
#define DDL_FIND(member, symbol, parameters) library.find(member, symbol);
  DDL_NCCL_FUNCTIONS(DDL_FIND)
#undef DDL_FIND
  library.find(error_text_, "ncclGetErrorString");
  library.find(last_error_, "ncclGetLastError");
  return library.missing().empty() ? "" : library.name() + " lacks " + library.missing();
}

namespace {

struct Opened {
  std::string why_not;
  Nccl nccl{why_not};
};

const Opened& opened() {
  // Never destroyed: threads may still make calls while the process exits.
  static const auto* const once = new Opened;
  return *once;
}

}  // namespace

const Nccl* Nccl::instance() { return opened().why_not.empty() ? &opened().nccl : nullptr; }

bool Nccl::unusable() { return opened().nccl.found_ && !opened().why_not.empty(); }

const std::string& Nccl::why_not() { return opened().why_not; }

std::string Nccl::text_of(NcclStatus status, NcclComm comm) const {
  std::string text = error_text_(status);
  const char* const last = last_error_(comm);
  if (last != nullptr && *last != 0) text += std::string(": ") + last;
  return text;
}

void Nccl::check(NcclStatus status, NcclComm comm, const std::string& what) const {
  if (status == kNcclSuccess || status == kNcclInProgress) return;
  throw Error(DDL_ERR_DEVICE, "NCCL failed in " + what + ": " + text_of(status, comm), Error::kOnThisRank,
              "NCCL_DEBUG=INFO in the environment makes NCCL say more");
}

NcclType nccl_type(DDL_Type type) {
  switch (type) {
    case DDL_TYPE_HALF:
      return NcclType::kHalf;
    case DDL_TYPE_DOUBLE:
      return NcclType::kDouble;
    case DDL_TYPE_BFLOAT16:
      return NcclType::kBfloat16;
    case DDL_TYPE_INT32:
      return NcclType::kInt32;
    case DDL_TYPE_INT64:
      return NcclType::kInt64;
    default:
      return NcclType::kFloat;
  }
}

bool nccl_reduces(DDL_Type type, DDL_Op op) {
  const bool integer = type == DDL_TYPE_INT32 || type == DDL_TYPE_INT64;
  switch (op) {
    case DDL_OP_MIN:
    case DDL_OP_MAX:
      return integer;
    case DDL_OP_AVG:
      return !integer;
    default:
      return true;
  }
}

NcclOp nccl_op(DDL_Op op) {
  switch (op) {
    case DDL_OP_MIN:
      return NcclOp::kMin;
    case DDL_OP_MAX:
      return NcclOp::kMax;
    case DDL_OP_PRODUCT:
      return NcclOp::kProduct;
    case DDL_OP_AVG:
      return NcclOp::kAverage;
    default:
      return NcclOp::kSum;
  }
}

}  // namespace ddl::cuda
