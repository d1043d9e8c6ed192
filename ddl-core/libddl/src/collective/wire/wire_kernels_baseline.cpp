#define DDL_WIRE_NAMESPACE wire_baseline
#include "collective/wire/wire_kernels_impl.hpp"
