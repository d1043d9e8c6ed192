#pragma once

#include <string>

namespace ddl {

/**
 * The reductions of cuda/kernels, compiled for GPUs of a compute capability (as 90 for 9.0): those that an
 * earlier job has kept in cache_folder(), else compiled now, and kept there. A file that is damaged, or of
 * another source or release of NVRTC, is not used; where no file can be written, each job compiles.
 *
 * @throws Error (DDL_ERR_DEVICE) where NVRTC is missing, whatever is kept, or a kernel does not compile
 */
std::string kept_kernels(int capability);

}  // namespace ddl
