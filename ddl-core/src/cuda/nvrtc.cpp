#include "cuda/nvrtc.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <vector>

#include "support/error.hpp"

namespace ddl::cuda {
namespace {

constexpr const char* kLibrary = "libnvrtc.so.12";

}  // namespace

std::string Nvrtc::open() {
  const char* const asked = std::getenv("DDL_NVRTC_LIBRARY");
  const std::string name = asked != nullptr && *asked != 0 ? asked : kLibrary;
  void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = dlerror();
    return "NVRTC is not there: " + std::string(why == nullptr ? name : why);
  }
  std::string missing;
  const auto find = [&](const char* symbol) {
    void* const found = dlsym(library, symbol);
    if (found == nullptr && missing.empty()) missing = symbol;
    return found;
  };
#define DDL_FIND(member, symbol, parameters) member = reinterpret_cast<decltype(member)>(find(symbol));
  DDL_NVRTC_FUNCTIONS(DDL_FIND)
#undef DDL_FIND
  error_text_ = reinterpret_cast<decltype(error_text_)>(find("nvrtcGetErrorString"));
  return missing.empty() ? "" : name + " lacks " + missing;
}

const Nvrtc& Nvrtc::opened() {
  // Never destroyed: threads may still make calls while the process exits.
  static const auto* const once = new Nvrtc;
  return *once;
}

const Nvrtc* Nvrtc::instance() { return opened().why_not_.empty() ? &opened() : nullptr; }

const std::string& Nvrtc::why_not() { return opened().why_not_; }

void Nvrtc::check(NvrtcStatus status, const std::string& what) const {
  if (status == kNvrtcSuccess) return;
  throw Error(DDL_ERR_DEVICE, "NVRTC failed in " + what + ": " + error_text_(status) +
                                  "; on this rank; look at DDL_NVRTC_LIBRARY and LD_LIBRARY_PATH");
}

std::string Nvrtc::compiled(const char* source, const char* name, int capability) const {
  int count = 0;
  check(arch_count(&count), "asking for its architectures");
  std::vector<int> known(static_cast<std::size_t>(std::max(count, 1)));
  check(archs(known.data()), "asking for its architectures");
  std::sort(known.begin(), known.end());
  const auto beyond = std::upper_bound(known.begin(), known.end(), capability);
  if (beyond == known.begin()) {
    throw Error(DDL_ERR_DEVICE, "NVRTC does not compile for a GPU of compute capability " +
                                    std::to_string(capability / 10) + "." + std::to_string(capability % 10) +
                                    "; on this rank; install a release of CUDA 12 that does");
  }
  const int target = *std::prev(beyond);
  // Drivers of CUDA 12 load the machine code of any release of CUDA 12, but not any PTX.
  const bool exact = target == capability;
  const std::string architecture =
      "--gpu-architecture=" + std::string(exact ? "sm_" : "compute_") + std::to_string(target);
  // Products and sums are rounded one by one, as on the processor.
  const char* const options[] = {architecture.c_str(), "--fmad=false", "--std=c++17"};
  NvrtcProgram program = nullptr;
  check(create(&program, source, name, 0, nullptr, nullptr), "making a program");
  std::string code;
  try {
    const NvrtcStatus status = compile(program, static_cast<int>(std::size(options)), options);
    if (status != kNvrtcSuccess) {
      std::size_t bytes = 0;
      std::string text;
      if (log_size(program, &bytes) == kNvrtcSuccess && bytes > 0) {
        text.resize(bytes);
        log(program, text.data());
        text = text.substr(0, text.find('\0'));
      }
      check(status, "compiling " + std::string(name) + " for " + architecture + ": " +
                        text.substr(0, text.find('\n')));
    }
    std::size_t bytes = 0;
    check(exact ? cubin_size(program, &bytes) : ptx_size(program, &bytes), "giving the code");
    code.resize(bytes);
    check(exact ? cubin(program, code.data()) : ptx(program, code.data()), "giving the code");
  } catch (const Error&) {
    destroy(&program);
    throw;
  }
  destroy(&program);
  return code;
}

}  // namespace ddl::cuda
