#define DDL_KERNEL_NAMESPACE kernels_baseline
#include "collective/kernels_impl.hpp"
