#pragma once

#include <string>

#include "topology/gpu_place.hpp"

namespace ddl {

/**
 * The place of a GPU with its NVLink island, as NVIDIA's library tells. Islands are counted as ddlrun does:
 * in the order of their first GPUs on the bus, among the GPUs that this process may use.
 *
 * For ranks whose launcher does not tell DDL_RANK_GPU. The library answers at once where CUDA has been
 * initialised before; where the driver hangs, so does this.
 * @param bus      of the GPU, in any spelling
 * @param library  NVIDIA's; another one in tests
 * @return with island -1 where the GPU is in none, or where the library is missing or fails
 */
GpuPlace place_of_gpu(const std::string& bus, const char* library = "libnvidia-ml.so.1");

}  // namespace ddl
