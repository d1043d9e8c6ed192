#pragma once

#include <string>

#include "cuda/driver_functions.hpp"

namespace ddl::cuda {

/**
 * NVIDIA's driver as this process has opened it. All functions of driver_functions.hpp are members, by the
 * names there.
 */
class Driver {
 public:
  /// Opens it at first use. @throws Error (DDL_ERR_DEVICE) where there is none, it is too old, or it sees no
  /// device; the same each time
  static const Driver& instance();
  /// Where somebody in this process has opened it already and it works; else null. Opens nothing, and costs
  /// no system call.
  static const Driver* if_loaded();

  /// @param what  was done, for the text: "copying from the device". @throws Error (DDL_ERR_DEVICE)
  void check(Status status, const char* what) const;
  /// "CUDA_ERROR_OUT_OF_MEMORY, out of memory"
  std::string text_of(Status status) const;

  int version = 0;  ///< of CUDA that it supports, as 12080 for 12.8
  int devices = 0;

#define DDL_MEMBER(member, symbol, parameters) Status(*member) parameters = nullptr;
  DDL_CUDA_DRIVER_FUNCTIONS(DDL_MEMBER)
#undef DDL_MEMBER

 private:
  void open();
};

/// "12.8" for 12080
std::string version_text(int version);

}  // namespace ddl::cuda
