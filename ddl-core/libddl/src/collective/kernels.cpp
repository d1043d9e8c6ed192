#include "collective/kernels.hpp"

#ifdef DDL_HAVE_AVX2_KERNELS
#include <cpuid.h>
#endif

namespace ddl {
namespace {

bool use_avx2() {
#ifdef DDL_HAVE_AVX2_KERNELS
  static const bool supported = [] {
    __builtin_cpu_init();
    // Not every compiler knows "f16c" as a name here.
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    const bool f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
    return f16c && __builtin_cpu_supports("avx2");
  }();
  return supported;
#else
  return false;
#endif
}

}  // namespace

ReduceKernel reduce_kernel(DDL_Type type, DDL_Op op) {
#ifdef DDL_HAVE_AVX2_KERNELS
  if (use_avx2()) return kernels_avx2::select(type, op);
#endif
  return kernels_baseline::select(type, op);
}

WideKernels wide_kernels(DDL_Type type) {
#ifdef DDL_HAVE_AVX2_KERNELS
  if (use_avx2()) return kernels_avx2::select_wide(type);
#endif
  return kernels_baseline::select_wide(type);
}

const char* kernel_isa() { return use_avx2() ? "avx2" : "baseline"; }

}  // namespace ddl
