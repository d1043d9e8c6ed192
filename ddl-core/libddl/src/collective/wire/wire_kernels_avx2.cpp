#define DDL_WIRE_NAMESPACE wire_avx2
#include "collective/wire/wire_kernels_impl.hpp"
