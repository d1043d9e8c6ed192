#pragma once

#include <cstddef>

/**
 * What DDL uses of NVIDIA's run-time compiler (libnvrtc.so.12), declared anew as in driver_functions.hpp, and
 * compared with NVIDIA's header by the same test.
 */
namespace ddl::cuda {

/// nvrtcResult; 0 is success.
using NvrtcStatus = int;
/// nvrtcProgram.
using NvrtcProgram = struct _nvrtcProgram*;

inline constexpr NvrtcStatus kNvrtcSuccess = 0;

}  // namespace ddl::cuda

/// F(member, symbol of the library, parameters): all that is called of NVRTC, but for nvrtcGetErrorString,
/// which returns a text.
#define DDL_NVRTC_FUNCTIONS(F)                                                                            \
  F(version, "nvrtcVersion", (int* major, int* minor))                                                    \
  F(arch_count, "nvrtcGetNumSupportedArchs", (int* count))                                                \
  F(archs, "nvrtcGetSupportedArchs", (int* archs))                                                        \
  F(create, "nvrtcCreateProgram",                                                                         \
    (NvrtcProgram * program, const char* source, const char* name, int headers,                           \
     const char* const* header_texts, const char* const* header_names))                                   \
  F(destroy, "nvrtcDestroyProgram", (NvrtcProgram * program))                                             \
  F(compile, "nvrtcCompileProgram", (NvrtcProgram program, int options, const char* const* option_texts)) \
  F(cubin_size, "nvrtcGetCUBINSize", (NvrtcProgram program, std::size_t * bytes))                         \
  F(cubin, "nvrtcGetCUBIN", (NvrtcProgram program, char* cubin))                                          \
  F(ptx_size, "nvrtcGetPTXSize", (NvrtcProgram program, std::size_t * bytes))                             \
  F(ptx, "nvrtcGetPTX", (NvrtcProgram program, char* ptx))                                                \
  F(log_size, "nvrtcGetProgramLogSize", (NvrtcProgram program, std::size_t * bytes))                      \
  F(log, "nvrtcGetProgramLog", (NvrtcProgram program, char* log))
