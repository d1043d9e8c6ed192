#include "cuda/nvrtc.hpp"

#include <algorithm>
#include <iterator>
#include <vector>

#include "cuda/dynamic_library.hpp"
#include "support/error.hpp"

namespace ddl::cuda {
namespace {

constexpr const char* kNvrtcLibrary = "libnvrtc.so.12";

}  // namespace

std::string Nvrtc::open() {
  DynamicLibrary library = DynamicLibrary::chosen("DDL_NVRTC_LIBRARY", kNvrtcLibrary);
  if (!library.open()) return "NVRTC is not there: " + library.why_not();
#define DDL_FIND(member, symbol, parameters) library.find(member, symbol);
  DDL_NVRTC_FUNCTIONS(DDL_FIND)
#undef DDL_FIND
  library.find(error_text_, "nvrtcGetErrorString");
  return library.missing().empty() ? "" : library.name() + " lacks " + library.missing();
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
  throw Error(DDL_ERR_DEVICE, "NVRTC failed in " + what + ": " + error_text_(status), Error::kOnThisRank,
              "look at DDL_NVRTC_LIBRARY and LD_LIBRARY_PATH");
}

std::string Nvrtc::release() const {
  int major = 0;
  int minor = 0;
  check(version(&major, &minor), "asking for its release");
  return std::to_string(major) + "." + std::to_string(minor);
}

std::string Nvrtc::compiled(const char* source, const char* name, int capability) const {
  int count = 0;
  check(arch_count(&count), "asking for its architectures");
  std::vector<int> known(static_cast<std::size_t>(std::max(count, 1)));
  check(archs(known.data()), "asking for its architectures");
  std::sort(known.begin(), known.end());
  const auto beyond = std::upper_bound(known.begin(), known.end(), capability);
  if (beyond == known.begin()) {
    throw Error(DDL_ERR_DEVICE,
                "NVRTC does not compile for a GPU of compute capability " + std::to_string(capability / 10) +
                    "." + std::to_string(capability % 10),
                Error::kOnThisRank, "install a release of CUDA 12 that does");
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
