#pragma once

#include <cstddef>
#include <cstdint>

#include "ddl.h"

namespace ddl {

/**
 * dst[i] = (src[0][i] op src[1][i] op … op src[n-1][i]) / divisor, always in this order: with p the largest
 * power of two up to n, source k takes in source k+p (where there is one), then source k+p/2, then k+p/4, and
 * so on to source 1. Recursive doubling adds in the same order, and the error of a sum grows with log2 n
 * only.
 *
 * 16-bit types are converted to float, reduced and divided in float, and rounded once. dst may be one of the
 * sources, but must not overlap one otherwise. n >= 1, divisor >= 1; only DDL_OP_AVG uses the divisor, other
 * ops ignore it.
 */
using ReduceKernel = void (*)(void* dst, const void* const* src, int n, std::size_t count,
                              std::int64_t divisor);

/// The fastest kernel for this processor.
ReduceKernel reduce_kernel(DDL_Type type, DDL_Op op);

/// Instruction set the kernels use: "avx2" or "baseline".
const char* kernel_isa();

namespace kernels_baseline {
ReduceKernel select(DDL_Type type, DDL_Op op);
}
#ifdef DDL_HAVE_AVX2_KERNELS
namespace kernels_avx2 {
ReduceKernel select(DDL_Type type, DDL_Op op);
}
#endif

}  // namespace ddl
