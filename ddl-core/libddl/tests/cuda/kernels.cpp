#include "kernels.hpp"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "settings.hpp"

namespace stand_in {
namespace {

constexpr int kNoBinary = 209;
constexpr int kInvalidPtx = 218;

}  // namespace

struct Kernels {
  void* library;
};

ddl::cuda::Status load_kernels(const void* image, int capability, Kernels** kernels) {
  ImageHead head;
  std::memcpy(&head, image, sizeof head);
  if (std::memcmp(head.magic, kImageMagic, sizeof kImageMagic) != 0) return kInvalidPtx;
  // Machine code runs within its major number; PTX on everything newer.
  const bool fits =
      head.capability <= capability && (head.exact == 0 || head.capability / 10 == capability / 10);
  if (!fits) return kNoBinary;
  const int file = memfd_create("stand-in-kernels", MFD_CLOEXEC);
  const char* at = static_cast<const char*>(image) + sizeof head;
  for (std::uint64_t left = head.bytes; left > 0;) {
    const ssize_t written = write(file, at, left);
    if (written <= 0) die("kernels cannot be written to a file: %s", std::strerror(errno));
    at += written;
    left -= static_cast<std::uint64_t>(written);
  }
  void* const library = dlopen(("/proc/self/fd/" + std::to_string(file)).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) die("kernels cannot be loaded: %s", dlerror());
  close(file);
  *kernels = new Kernels{library};
  return ddl::cuda::kSuccess;
}

void unload_kernels(Kernels* kernels) {
  dlclose(kernels->library);
  delete kernels;
}

const Entry* find_kernel(Kernels* kernels, const char* name) {
  return static_cast<const Entry*>(dlsym(kernels->library, (std::string("stand_in_entry_") + name).c_str()));
}

}  // namespace stand_in
