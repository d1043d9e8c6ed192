#include "engine/kernel_cache.hpp"

#include <cstddef>

#include "cuda/reduce_kernels.hpp"
#include "engine/cache_folder.hpp"

namespace ddl {
namespace {

/// More than the code of any release has been by far: a file that is longer is not ours.
constexpr std::size_t kLargestBytes = std::size_t{16} << 20;

/// The first line of a file: what the code was made from, and what it has to be.
std::string first_line(const std::string& made_from, const std::string& code) {
  return "ddl kernels 1, " + made_from + ", " + std::to_string(code.size()) + " bytes, " +
         fingerprint_of(code) + "\n";
}

}  // namespace

std::string kept_kernels(int capability) {
  const std::string made_from = "source " + fingerprint_of(cuda::kReduceSource) + ", NVRTC " +
                                cuda::ReduceKernels::compiler() + ", capability " +
                                std::to_string(capability);
  const std::string folder = cache_folder();
  const std::string path = folder + "/kernels-" + fingerprint_of(made_from) + ".bin";
  if (!folder.empty()) {
    const std::string text = read_cached(path, kLargestBytes);
    const std::size_t line = text.find('\n') + 1;
    const std::string code = text.substr(line);
    if (line > 0 && text.compare(0, line, first_line(made_from, code)) == 0) return code;
  }
  const std::string code = cuda::ReduceKernels::compiled(capability);
  if (!folder.empty()) write_cached(path, first_line(made_from, code) + code);
  return code;
}

}  // namespace ddl
