#pragma once

#include <string>

#include "cuda/nvrtc_functions.hpp"

namespace ddl::cuda {

/// NVIDIA's run-time compiler as this process has opened it.
class Nvrtc {
 public:
  /// Opens it at first use: DDL_NVRTC_LIBRARY, else libnvrtc.so.12 of the environment. Null where there is
  /// none that can be used: why_not() then says why.
  static const Nvrtc* instance();
  static const std::string& why_not();

  /// As "12.8". @throws Error (DDL_ERR_DEVICE)
  std::string release() const;

  /// Machine code for a GPU, or, where this compiler does not know it, PTX of the newest older one that it
  /// does, for the driver to translate. @param capability  as 90 for 9.0
  /// @throws Error (DDL_ERR_DEVICE) with what the compiler says
  std::string compiled(const char* source, const char* name, int capability) const;

 private:
  Nvrtc() { why_not_ = open(); }
  static const Nvrtc& opened();
  std::string open();
  void check(NvrtcStatus status, const std::string& what) const;

#define DDL_MEMBER(member, symbol, parameters) NvrtcStatus(*member) parameters = nullptr;
  DDL_NVRTC_FUNCTIONS(DDL_MEMBER)
#undef DDL_MEMBER
  const char* (*error_text_)(NvrtcStatus) = nullptr;
  std::string why_not_;
};

}  // namespace ddl::cuda
