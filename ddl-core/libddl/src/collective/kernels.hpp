#pragma once

#include <cstddef>
#include <cstdint>

#include "ddl.h"

namespace ddl {

/**
 * dst[i] = (src[0][i] op src[1][i] op … op src[n-1][i]) / divisor, always in this order: with p the largest
 * power of two up to n, n-p pairs of neighbours are joined, spread evenly, so that p are left: number k is
 * source k + floor(k (n-p) / p), with the next source where number k+1 begins two further on. Then number k
 * takes in number k+p/2, then k+p/4, and so on to k+1. Recursive doubling and halving add
 * in the same order (as in R. Thakur et al., "Optimization of Collective Communication Operations in MPICH",
 * 2005), and the error of a sum grows with log2 n only.
 *
 * 16-bit types are converted to float, reduced and divided in float, and rounded once. dst may be one of the
 * sources, but must not overlap one otherwise. n >= 1, divisor >= 1; only DDL_OP_AVG uses the divisor, other
 * ops ignore it.
 */
using ReduceKernel = void (*)(void* dst, const void* const* src, int n, std::size_t count,
                              std::int64_t divisor);

/// The fastest kernel for this processor.
ReduceKernel reduce_kernel(DDL_Type type, DDL_Op op);

/// 16-bit types as float, for partial sums that are rounded once, at the end: the same bits as
/// ReduceKernel's.
struct WideKernels {
  void (*widen)(float* dst, const void* src, std::size_t count);
  /// dst = src / divisor, rounded
  void (*narrow)(void* dst, const float* src, std::size_t count, std::int64_t divisor);
};

/// Of a 16-bit type; null pointers for the others.
WideKernels wide_kernels(DDL_Type type);

/// Instruction set the kernels use: "avx2" or "baseline".
const char* kernel_isa();

namespace kernels_baseline {
ReduceKernel select(DDL_Type type, DDL_Op op);
WideKernels select_wide(DDL_Type type);
}  // namespace kernels_baseline
#ifdef DDL_HAVE_AVX2_KERNELS
namespace kernels_avx2 {
ReduceKernel select(DDL_Type type, DDL_Op op);
WideKernels select_wide(DDL_Type type);
}  // namespace kernels_avx2
#endif

}  // namespace ddl
