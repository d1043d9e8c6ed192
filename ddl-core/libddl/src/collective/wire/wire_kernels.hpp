#pragma once

#include <stddef.h>

namespace ddl {

/// The kernels of one wire format; arguments as described in wire_format.hpp.
struct WireKernels {
  void (*encode)(const float* from, size_t count, void* to, float* residual);
  void (*decode)(const void* from, size_t count, float* to);
  void (*decode_add)(const void* from, size_t count, float* accumulator);
};

struct WireKernelSet {
  WireKernels full;
  WireKernels fp16;
  WireKernels bf16;
  WireKernels q8;
};

namespace wire_baseline {
const WireKernelSet& kernels();
}
#ifdef DDL_HAVE_AVX2_KERNELS
namespace wire_avx2 {
const WireKernelSet& kernels();
}
#endif

}  // namespace ddl
