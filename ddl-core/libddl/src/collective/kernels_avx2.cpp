#define DDL_KERNEL_NAMESPACE kernels_avx2
#include "collective/kernels_impl.hpp"
