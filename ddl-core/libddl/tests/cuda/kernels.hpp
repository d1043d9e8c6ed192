#pragma once

#include "cuda/driver_functions.hpp"
#include "kernel_image.hpp"

namespace stand_in {

/// Kernels of one module: a shared object of the stand-in for NVRTC. Status values are CUresult.
struct Kernels;

ddl::cuda::Status load_kernels(const void* image, int capability, Kernels** kernels);
void unload_kernels(Kernels* kernels);
/// Null where there is none of that name.
const Entry* find_kernel(Kernels* kernels, const char* name);

}  // namespace stand_in
