#pragma once

#include <string>

#include "cuda/nccl_functions.hpp"
#include "ddl.h"

namespace ddl::cuda {

/// NCCL as this process has opened it. All functions of nccl_functions.hpp are members, by the names there.
class Nccl {
 public:
  /// Opens it. @param why_not  receives why it cannot be used, or nothing
  explicit Nccl(std::string& why_not) { why_not = open(); }

  /// Opens it at first use: the one that the process has loaded already (a framework's), else the
  /// environment's, else DDL_NCCL_LIBRARY. Null where there is none, or an unusable one: why_not() then says
  /// why.
  static const Nccl* instance();
  static const std::string& why_not();
  /// There is one, but it is no release that DDL works with.
  static bool unusable();

  /// As 22800 for 2.28.0.
  int release = 0;

  /// "internal error: …" with NCCL's own words on the last failure.
  std::string text_of(NcclStatus status, NcclComm comm) const;
  /// @param what  was done: "an all-reduce". @throws Error (DDL_ERR_DEVICE) unless it succeeded or is in
  /// progress
  void check(NcclStatus status, NcclComm comm, const std::string& what) const;

#define DDL_MEMBER(member, symbol, parameters) NcclStatus(*member) parameters = nullptr;
  DDL_NCCL_FUNCTIONS(DDL_MEMBER)
#undef DDL_MEMBER

 private:
  std::string open();
  bool found_ = false;
  const char* (*error_text_)(NcclStatus) = nullptr;
  const char* (*last_error_)(NcclComm) = nullptr;
};

/// "2.28.3" for 22803
std::string nccl_version_text(int version);

NcclType nccl_type(DDL_Type type);
/// Whether NCCL's reduction is DDL's: its minima and maxima lose NaN, and its averages of integers are not
/// ours.
bool nccl_reduces(DDL_Type type, DDL_Op op);
/// @param op  one that nccl_reduces()
NcclOp nccl_op(DDL_Op op);

}  // namespace ddl::cuda
