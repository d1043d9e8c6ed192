#include "cuda/driver.hpp"

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string_view>

#include "cuda/dynamic_library.hpp"
#include "support/error.hpp"

namespace ddl::cuda {
namespace {

constexpr const char* kDriverLibrary = "libcuda.so.1";
/// The first driver of CUDA 12, and what Linux calls it.
constexpr int kLeastVersion = 12000;
constexpr const char* kLeastRelease = "525.60.13";

[[noreturn]] void fail(const std::string& what, const std::string& remedy) {
  throw Error(DDL_ERR_DEVICE, what, "on this host", remedy);
}

/// Why the driver refuses to start, where its own words do not say what to do.
std::string remedy_for(Status status) {
  constexpr Status kStub = 34;
  constexpr Status kMismatch = 803;
  constexpr Status kCompatibility = 804;
  switch (status) {
    case kNoDevice: {
      const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
      if (visible == nullptr)
        return "check with nvidia-smi, and in a container that it was started with --nv";
      return "CUDA_VISIBLE_DEVICES is '" + std::string(visible) +
             "': it must name devices that nvidia-smi -L lists, by number or UUID";
    }
    case kStub:
      return "this libcuda.so.1 is a stub that only links: take its folder out of LD_LIBRARY_PATH";
    case kMismatch:
    case kCompatibility:
      return "the library and the kernel's module of the driver are of different releases: restart the host "
             "after an "
             "update of the driver, and in a container bind the host's library (--nv)";
    default:
      return "check the driver with nvidia-smi";
  }
}

/// A look at the libraries of this process.
struct LibrariesLook {
  unsigned long long seen;        ///< how many had been loaded when they were looked at last
  unsigned long long loaded = 0;  ///< how many have been by now
  bool driver = false;            ///< one of them is the driver; only known where there are new ones
};

int look_at_library(dl_phdr_info* library, std::size_t, void* data) {
  LibrariesLook& look = *static_cast<LibrariesLook*>(data);
  look.loaded = library->dlpi_adds;
  if (look.loaded == look.seen) return 1;
  std::string_view name = library->dlpi_name == nullptr ? "" : library->dlpi_name;
  name.remove_prefix(name.rfind('/') + 1);  // npos + 1 is 0
  look.driver = name.starts_with("libcuda.so");
  return look.driver ? 1 : 0;
}

}  // namespace

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string Driver::text_of(Status status) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (error_name(status, &name) != kSuccess || name == nullptr) return "error " + std::to_string(status);
  if (error_text(status, &text) != kSuccess || text == nullptr) return name;
  return std::string(name) + ", " + text;
}

void Driver::check(Status status, const char* what) const {
  if (status == kSuccess) return;
  throw Error(DDL_ERR_DEVICE, std::string("CUDA failed when ") + what + ": " + text_of(status),
              Error::kOnThisRank,
              "look at the state of the device, and at what the program did on it before");
}

void Driver::open() {
  DynamicLibrary library(kDriverLibrary, RTLD_GLOBAL);
  if (!library.open()) {
    fail("the NVIDIA driver is not there: " + library.why_not(),
         "install it, or in a container start with --nv");
  }
  // What tells how old it is comes before what an old one lacks.
  if (library.find(driver_version, "cuDriverGetVersion") && driver_version(&version) == kSuccess &&
      version > 0 && version < kLeastVersion) {
    fail("the NVIDIA driver supports CUDA " + version_text(version) + ", but DDL needs 12.0",
         "update it to " + std::string(kLeastRelease) + " or newer");
  }
#define DDL_FIND(member, symbol, parameters) library.find(member, symbol);
  DDL_CUDA_DRIVER_FUNCTIONS(DDL_FIND)
#undef DDL_FIND
  if (!library.missing().empty()) {
    fail("the NVIDIA driver lacks " + library.missing(),
         std::string("update it to ") + kLeastRelease + " or newer, which supports CUDA 12");
  }
  const Status status = init(0);
  if (status != kSuccess) fail("CUDA cannot start: " + text_of(status), remedy_for(status));
  if (device_count(&devices) != kSuccess || devices == 0) {
    fail("the NVIDIA driver sees no device", remedy_for(kNoDevice));
  }
}

const Driver& Driver::instance() {
  static std::mutex mutex;
  // Never destroyed: threads may still make calls while the process exits.
  static const Driver* opened = nullptr;
  static std::optional<Error> failure;
  const std::lock_guard lock(mutex);
  if (failure) throw Error(*failure);
  if (opened == nullptr) {
    auto* const made = new Driver;
    try {
      made->open();
    } catch (const Error& error) {
      failure = error;
      delete made;
      throw;
    }
    opened = made;
  }
  return *opened;
}

const Driver* Driver::if_loaded() {
  // Asked in every call. dlopen() would search the file system for a driver that is not there, and wait for a
  // library that another thread is loading. The list of libraries is locked only while one is entered.
  static std::atomic<const Driver*> known = nullptr;
  static std::atomic<unsigned long long> seen = 0;
  static std::atomic<bool> fails = false;
  if (const Driver* const driver = known.load(std::memory_order_acquire)) return driver;
  if (fails.load(std::memory_order_relaxed)) return nullptr;
  LibrariesLook look{seen.load(std::memory_order_relaxed)};
  dl_iterate_phdr(look_at_library, &look);
  if (!look.driver) {
    seen.store(look.loaded, std::memory_order_relaxed);
    return nullptr;
  }
  void* const library = dlopen(kDriverLibrary, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  dlclose(library);
  try {
    known.store(&instance(), std::memory_order_release);
  } catch (const Error&) {
    // It would be the same error each time.
    fails.store(true, std::memory_order_relaxed);
  }
  return known.load(std::memory_order_acquire);
}

}  // namespace ddl::cuda
