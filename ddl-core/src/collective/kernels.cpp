#include "collective/kernels.hpp"

namespace ddl {
namespace {

bool use_avx2() {
#ifdef DDL_HAVE_AVX2_KERNELS
  static const bool supported = [] {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
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

const char* kernel_isa() { return use_avx2() ? "avx2" : "baseline"; }

}  // namespace ddl
