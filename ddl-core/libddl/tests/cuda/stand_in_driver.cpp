// Stands for CUDA's driver in tests: devices whose memory the host cannot touch, and streams that are late.
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "cuda/driver_functions.hpp"
#include "device_memory.hpp"
#include "driver_inside.hpp"
#include "kernels.hpp"
#include "settings.hpp"
#include "stand_in.hpp"
#include "streams.hpp"

namespace ddl::cuda {

// Every function of the list under its symbol. One that is not defined below leaves the table of functions at
// the end without its address, and the library is not linked.
#define F(member, symbol, parameters) \
  extern "C" STAND_IN_EXPORT Status stand_in_##member parameters __asm__(symbol);
DDL_CUDA_DRIVER_FUNCTIONS(F)
#undef F

}  // namespace ddl::cuda

namespace stand_in {
namespace {

using ddl::cuda::DeviceHandle;
using ddl::cuda::Event;
using ddl::cuda::kSuccess;
using ddl::cuda::Uuid;

constexpr Status kInvalidDevice = 101;
constexpr Status kInvalidContext = 201;
constexpr Status kInvalidHandle = 400;
constexpr Status kNotFound = 500;
constexpr Status kContextDestroyed = 709;
constexpr Status kNotRegistered = 713;
constexpr Status kLaunchFailed = 719;
constexpr Status kCaptureUnsupported = 900;
constexpr Status kCaptureImplicit = 906;

struct ErrorText {
  Status status;
  const char* name;
  const char* text;
};
constexpr ErrorText kErrors[] = {
    {kSuccess, "CUDA_SUCCESS", "no error"},
    {kInvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {ddl::cuda::kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {ddl::cuda::kDeinitialized, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {ddl::cuda::kNoDevice, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {kNotFound, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {205, "CUDA_ERROR_MAP_FAILED", "mapping of buffer object failed"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported between these two devices"},
    {218, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {ddl::cuda::kNotReady, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {kContextDestroyed, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {ddl::cuda::kAlreadyRegistered, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
     "part or all of the requested memory range is already mapped"},
    {kNotRegistered, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
     "pointer does not correspond to a registered memory region"},
    {kLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {ddl::cuda::kNotSupported, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
     "system has unsupported display driver / cuda driver combination"},
    {kCaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {kCaptureImplicit, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

/// Page-locked memory of the host, allocated here or registered.
struct Pinned {
  std::size_t bytes;
  bool allocated;
};
enum class Pinning { kNone, kPartly, kWhole };

/// A kernel that was asked for.
struct Kernel {
  Kernels* of;
  bool launched = false;  ///< once at least, and is loaded since then
};

class Driver {
 public:
  Streams streams;
  std::atomic<bool> initialized{false};
  std::atomic<bool> gone{false};
  pid_t process = 0;
  std::vector<int> visible;  ///< numbers of the machine's devices
  std::vector<Context> contexts;
  std::unique_ptr<DeviceMemory> memory;
  std::map<std::uintptr_t, Pinned> pinned;
  std::unordered_set<Event> events;
  std::unordered_set<Kernels*> modules;
  std::map<const Entry*, Kernel> kernels;

  static Driver& instance() {
    static auto* const driver = new Driver;  // outlives everything, as calls come at exit as well
    return *driver;
  }

  void end() {
    gone = true;
    if (process == getpid()) streams.stop();
  }

  Pinning pinning(const void* address, std::size_t bytes) const {
    const auto from = reinterpret_cast<std::uintptr_t>(address);
    auto next = pinned.upper_bound(from);
    if (next != pinned.begin()) {
      const auto& [base, one] = *std::prev(next);
      if (from - base < one.bytes)
        return from - base + bytes <= one.bytes ? Pinning::kWhole : Pinning::kPartly;
    }
    return next != pinned.end() && next->first < from + bytes ? Pinning::kPartly : Pinning::kNone;
  }

  std::size_t destroy_events(Context context) {
    std::size_t destroyed = 0;
    for (auto one = events.begin(); one != events.end();) {
      if ((*one)->context != context) {
        ++one;
        continue;
      }
      delete *one;
      one = events.erase(one);
      ++destroyed;
    }
    return destroyed;
  }
};

Driver& driver() { return Driver::instance(); }

/// The driver goes before whatever was loaded earlier, as the real one does.
struct AtExit {
  ~AtExit() { driver().end(); }
} at_exit;

thread_local Context current = nullptr;

Status usable() {
  if (driver().gone) return ddl::cuda::kDeinitialized;
  // A forked process has no driver.
  return driver().initialized && driver().process == getpid() ? kSuccess : ddl::cuda::kNotInitialized;
}

template <class Body>
Status initialized(Body body) {
  if (const Status status = usable(); status != kSuccess) return status;
  Streams::Lock lock(driver().streams.mutex);
  return body(lock);
}

Status context_state() {
  if (current == nullptr) return kInvalidContext;
  return current->retained == 0 ? kContextDestroyed : current->broken;
}

template <class Body>
Status in_context(Body body) {
  return initialized([&](Streams::Lock& lock) -> Status {
    const Status status = context_state();
    return status == kSuccess ? body(lock) : status;
  });
}

/// Of calls that queue or allocate: they need the lock of their context, which another thread's call may hold
/// while it waits for a stream.
template <class Body>
Status queueing(Body body) {
  return in_context([&](Streams::Lock& lock) -> Status {
    driver().streams.enter(lock, current);
    const Status status = context_state();
    return status == kSuccess ? body(lock) : status;
  });
}

bool is_device(DeviceHandle device) {
  return device >= 0 && device < static_cast<int>(driver().visible.size());
}

/// The stream of a handle; null if there is none.
Stream stream_of(Context context, Stream handle) {
  const auto number = reinterpret_cast<std::uintptr_t>(handle);
  if (number <= 1) return &context->legacy;
  if (number == 2) {
    Stream& own = context->of_threads[std::this_thread::get_id()];
    if (own == nullptr) own = driver().streams.create(context, true, 0);
    return own;
  }
  return driver().streams.exists(handle) ? handle : nullptr;
}

/// Whether something can be queued on it.
Status accepts(Stream stream) {
  if (stream == nullptr) return kInvalidHandle;
  if (stream->context->broken != kSuccess) return stream->context->broken;
  if (stream->capturing != 0) return kCaptureUnsupported;
  if (stream->legacy && driver().streams.captures(stream->context)) return kCaptureImplicit;
  return kSuccess;
}

class Copy : public Operation {
 public:
  Copy(char* to, const char* from, std::size_t bytes, bool fails)
      : to_(to), from_(from), bytes_(bytes), fails_(fails) {}
  Progress advance() override {
    if (fails_) return Progress::kFailed;
    std::memcpy(to_, from_, bytes_);
    return Progress::kEnded;
  }

 private:
  char* to_;
  const char* from_;
  std::size_t bytes_;
  bool fails_;
};

/// A kernel. Its parameters are copied when it is launched.
class Launch : public Operation {
 public:
  Launch(const Entry& entry, Grid grid, void** parameters, bool fails)
      : entry_(entry), grid_(grid), fails_(fails) {
    for (std::size_t i = 0; i < entry.parameters; ++i) {
      const auto* const from = static_cast<const char*>(parameters[i]);
      values_.emplace_back(from, from + entry.sizes[i]);
    }
  }
  Progress advance() override {
    if (fails_) return Progress::kFailed;
    std::vector<const void*> values;
    for (const std::vector<char>& value : values_) values.push_back(value.data());
    // What frees or closes memory waits for this, so that it stays the same while the kernel runs.
    allow(true);
    entry_.run(grid_, values.data());
    allow(false);
    return Progress::kEnded;
  }

 private:
  static void allow(bool access) {
    const Streams::Lock lock(driver().streams.mutex);
    driver().memory->allow(access);
  }

  const Entry entry_;
  const Grid grid_;
  const bool fails_;
  std::vector<std::vector<char>> values_;
};

class Record : public Operation {
 public:
  explicit Record(std::shared_ptr<std::atomic<bool>> done) : done_(std::move(done)) {}
  Progress advance() override {
    *done_ = true;
    return Progress::kEnded;
  }
  bool late() const override { return false; }

 private:
  std::shared_ptr<std::atomic<bool>> done_;
};

class WaitForRecord : public Operation {
 public:
  explicit WaitForRecord(std::shared_ptr<std::atomic<bool>> done) : done_(std::move(done)) {}
  Progress advance() override { return *done_ ? Progress::kEnded : Progress::kWaiting; }
  bool late() const override { return false; }

 private:
  std::shared_ptr<std::atomic<bool>> done_;
};

class WaitForValue : public Operation {
 public:
  WaitForValue(const std::uint32_t* at, std::uint32_t value, unsigned condition)
      : at_(at), value_(value), condition_(condition) {}
  Progress advance() override {
    const std::uint32_t seen = __atomic_load_n(at_, __ATOMIC_ACQUIRE);
    const bool ended = condition_ == 0   ? static_cast<std::int32_t>(seen - value_) >= 0
                       : condition_ == 1 ? seen == value_
                       : condition_ == 2 ? (seen & value_) != 0
                                         : ~(seen | value_) != 0;
    return ended ? Progress::kEnded : Progress::kWaiting;
  }

 private:
  const std::uint32_t* at_;
  std::uint32_t value_;
  unsigned condition_;
};

class WriteValue : public Operation {
 public:
  WriteValue(std::uint32_t* at, std::uint32_t value) : at_(at), value_(value) {}
  Progress advance() override {
    __atomic_store_n(at_, value_, __ATOMIC_RELEASE);
    return Progress::kEnded;
  }

 private:
  std::uint32_t* at_;
  std::uint32_t value_;
};

/// `host` is where the bytes lie on the host, or null.
Status copy(Streams::Lock& lock, char* to, const char* from, const void* host, std::size_t bytes,
            Stream handle) {
  Stream stream = stream_of(current, handle);
  if (const Status status = accepts(stream); status != kSuccess) return status;
  if (comes_due(Setting::kFailCopy)) return kLaunchFailed;
  const Pinning pinning = host == nullptr ? Pinning::kWhole : driver().pinning(host, bytes);
  if (pinning == Pinning::kPartly) return kInvalidValue;
  const bool fails = comes_due(Setting::kFailCopyLate);
  driver().streams.queue(stream, std::make_unique<Copy>(to, from, bytes, fails));
  if (pinning == Pinning::kWhole) return kSuccess;
  // The driver has to look at such memory during the call.
  count(Count::kUnpinnedCopies);
  driver().streams.wait_inside(lock, current, stream, "a copy from or to memory that is not page-locked");
  return current->broken;
}

std::string uuid_text(int number) {
  char text[64];
  std::snprintf(text, sizeof text, "GPU-5ca1ab1e-0000-4000-8000-%012x", static_cast<unsigned>(number));
  return text;
}

/// What CUDA_VISIBLE_DEVICES chooses: numbers, or starts of UUIDs; the first that is wrong ends the list.
std::vector<int> visible_devices() {
  const int devices = static_cast<int>(setting(Setting::kDevices));
  std::vector<int> all;
  for (int number = 0; number < devices; ++number) all.push_back(number);
  const char* text = std::getenv("CUDA_VISIBLE_DEVICES");
  if (text == nullptr) return all;
  std::vector<int> chosen;
  std::string rest = text;
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    const std::string word = rest.substr(0, comma);
    rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
    const auto one = std::find_if(all.begin(), all.end(), [&](int number) {
      return word == std::to_string(number) ||
             (word.size() > 4 && uuid_text(number).compare(0, word.size(), word) == 0);
    });
    if (one == all.end()) break;
    if (std::find(chosen.begin(), chosen.end(), *one) != chosen.end()) return {};
    chosen.push_back(*one);
  }
  return chosen;
}

Status write_shown(std::uint64_t address, void* host, std::size_t bytes, bool write) {
  return initialized([&](Streams::Lock&) -> Status {
    if (bytes == 0) return kSuccess;
    const std::optional<Place> place = driver().memory->find(address, bytes);
    if (!place) return kInvalidValue;
    if (write) {
      std::memcpy(place->shown, host, bytes);
    } else {
      std::memcpy(host, place->shown, bytes);
    }
    return kSuccess;
  });
}

}  // namespace

Status device_of_thread(int* device) {
  return initialized([&](Streams::Lock&) -> Status {
    *device = current == nullptr ? 0 : current->device;
    if (!is_device(*device)) return ddl::cuda::kNoDevice;
    return driver().contexts[static_cast<std::size_t>(*device)]->broken;
  });
}

Uuid uuid_of(int device) {
  const std::string text = uuid_text(driver().visible[static_cast<std::size_t>(device)]);
  Uuid uuid{};
  std::size_t nibble = 0;
  for (const char c : text.substr(4)) {
    if (c == '-') continue;
    const int value = c <= '9' ? c - '0' : c - 'a' + 10;
    uuid.bytes[nibble / 2] = static_cast<char>(uuid.bytes[nibble / 2] << 4 | value);
    ++nibble;
  }
  return uuid;
}

int bus_of(int device) { return 0x10 + driver().visible[static_cast<std::size_t>(device)]; }

std::optional<Place> find_memory(const void* address, std::size_t bytes) {
  std::optional<Place> place;
  initialized([&](Streams::Lock&) {
    place = driver().memory->find(reinterpret_cast<DeviceAddress>(address), bytes);
    return kSuccess;
  });
  return place;
}

Status check_stream(int device, Stream handle) {
  return initialized([&](Streams::Lock&) -> Status {
    Context context = driver().contexts[static_cast<std::size_t>(device)];
    if (context->retained == 0) return kContextDestroyed;
    Stream stream = stream_of(context, handle);
    if (stream != nullptr && stream->context != context) return kInvalidHandle;
    return accepts(stream);
  });
}

Status queue(int device, Stream handle, std::unique_ptr<Operation> operation) {
  return initialized([&](Streams::Lock&) -> Status {
    Stream stream = stream_of(driver().contexts[static_cast<std::size_t>(device)], handle);
    if (const Status status = accepts(stream); status != kSuccess) return status;
    driver().streams.queue(stream, std::move(operation));
    return kSuccess;
  });
}

Status queue_behind(int device, Stream waiting, Stream other) {
  return initialized([&](Streams::Lock&) -> Status {
    Context context = driver().contexts[static_cast<std::size_t>(device)];
    Stream first = stream_of(context, other);
    Stream second = stream_of(context, waiting);
    for (Stream stream : {first, second}) {
      if (const Status status = accepts(stream); status != kSuccess) return status;
    }
    auto done = std::make_shared<std::atomic<bool>>(false);
    driver().streams.queue(first, std::make_unique<Record>(done));
    driver().streams.queue(second, std::make_unique<WaitForRecord>(done));
    return kSuccess;
  });
}

void run_later(std::chrono::microseconds delay, std::function<void()> task) {
  driver().streams.run_later(delay, std::move(task));
}

std::chrono::microseconds some_time() {
  const Streams::Lock lock(driver().streams.mutex);
  const auto most = static_cast<std::uint64_t>(setting(Setting::kDelayUs));
  return std::chrono::microseconds(driver().streams.random(most + 1));
}

bool context_locked(int device) {
  const Streams::Lock lock(driver().streams.mutex);
  return driver().contexts[static_cast<std::size_t>(device)]->locked;
}

bool driver_gone() { return driver().gone; }

void wake_worker() {
  const Streams::Lock lock(driver().streams.mutex);
  driver().streams.wake();
}

}  // namespace stand_in

namespace ddl::cuda {

using stand_in::Copy;
using stand_in::count;
using stand_in::Count;
using stand_in::count_back;
using stand_in::current;
using stand_in::driver;
using stand_in::in_context;
using stand_in::initialized;
using stand_in::is_device;
using stand_in::kInvalidContext;
using stand_in::kInvalidDevice;
using stand_in::kInvalidHandle;
using stand_in::kInvalidValue;
using stand_in::kOutOfMemory;
using stand_in::Pinned;
using stand_in::Place;
using stand_in::queueing;
using stand_in::setting;
using stand_in::Setting;
using Lock = stand_in::Streams::Lock;

extern "C" {

Status stand_in_init(unsigned flags) {
  if (driver().gone) return kDeinitialized;
  if (flags != 0) return kInvalidValue;
  if (setting(Setting::kInitStatus) != 0) return static_cast<Status>(setting(Setting::kInitStatus));
  // In a forked process somebody who is not there may hold the lock.
  if (driver().initialized && driver().process != getpid()) return kNotInitialized;
  const Lock lock(driver().streams.mutex);
  if (driver().initialized) return kSuccess;
  driver().visible = stand_in::visible_devices();
  if (driver().visible.empty()) return kNoDevice;
  driver().process = getpid();
  driver().memory = std::make_unique<stand_in::DeviceMemory>(driver().visible);
  for (std::size_t device = 0; device < driver().visible.size(); ++device) {
    auto* const context = new CUctx_st;
    context->device = static_cast<int>(device);
    context->legacy.context = context;
    context->legacy.legacy = true;
    driver().streams.adopt(&context->legacy);
    driver().contexts.push_back(context);
  }
  driver().streams.start();
  driver().initialized = true;
  return kSuccess;
}

Status stand_in_driver_version(int* version) {
  if (version == nullptr) return kInvalidValue;
  *version = static_cast<int>(setting(Setting::kDriverVersion));
  return kSuccess;
}

Status stand_in_error_name(Status error, const char** text) {
  if (text == nullptr) return kInvalidValue;
  *text = nullptr;
  for (const auto& known : stand_in::kErrors) {
    if (known.status == error) *text = known.name;
  }
  return *text == nullptr ? kInvalidValue : kSuccess;
}

Status stand_in_error_text(Status error, const char** text) {
  if (text == nullptr) return kInvalidValue;
  *text = nullptr;
  for (const auto& known : stand_in::kErrors) {
    if (known.status == error) *text = known.text;
  }
  return *text == nullptr ? kInvalidValue : kSuccess;
}

Status stand_in_device_count(int* count) {
  return initialized([&](Lock&) {
    if (count == nullptr) return kInvalidValue;
    *count = static_cast<int>(driver().visible.size());
    return kSuccess;
  });
}

Status stand_in_device_get(DeviceHandle* device, int ordinal) {
  return initialized([&](Lock&) {
    if (device == nullptr) return kInvalidValue;
    if (!is_device(ordinal)) return kInvalidDevice;
    *device = ordinal;
    return kSuccess;
  });
}

Status stand_in_device_name(char* name, int capacity, DeviceHandle device) {
  return initialized([&](Lock&) {
    if (name == nullptr || capacity <= 0) return kInvalidValue;
    if (!is_device(device)) return kInvalidDevice;
    std::snprintf(name, static_cast<std::size_t>(capacity), "stand-in for a GPU");
    return kSuccess;
  });
}

Status stand_in_device_uuid(Uuid* uuid, DeviceHandle device) {
  return initialized([&](Lock&) {
    if (uuid == nullptr) return kInvalidValue;
    if (!is_device(device)) return kInvalidDevice;
    *uuid = stand_in::uuid_of(device);
    return kSuccess;
  });
}

Status stand_in_device_attribute(int* value, int attribute, DeviceHandle device) {
  return initialized([&](Lock&) {
    if (value == nullptr) return kInvalidValue;
    if (!is_device(device)) return kInvalidDevice;
    if (attribute == kAttributePciBus) {
      *value = stand_in::bus_of(device);
    } else if (attribute == kAttributePciDevice || attribute == kAttributePciDomain) {
      *value = 0;
    } else if (attribute == kAttributeMultiprocessors) {
      *value = 2;
    } else if (attribute == kAttributeCapabilityMajor) {
      *value = static_cast<int>(setting(Setting::kCapability)) / 10;
    } else if (attribute == kAttributeCapabilityMinor) {
      *value = static_cast<int>(setting(Setting::kCapability)) % 10;
    } else {
      return kInvalidValue;
    }
    return kSuccess;
  });
}

Status stand_in_primary_retain(Context* context, DeviceHandle device) {
  return initialized([&](Lock&) {
    if (context == nullptr) return kInvalidValue;
    if (!is_device(device)) return kInvalidDevice;
    *context = driver().contexts[static_cast<std::size_t>(device)];
    if ((*context)->retained++ == 0) count(Count::kHeldContexts);
    return (*context)->broken;
  });
}

Status stand_in_primary_release(DeviceHandle device) {
  return initialized([&](Lock& lock) {
    if (!is_device(device)) return kInvalidDevice;
    Context context = driver().contexts[static_cast<std::size_t>(device)];
    if (context->retained == 0) return kInvalidContext;
    if (--context->retained > 0) return kSuccess;
    // Whatever is left on the device goes with its context.
    driver().streams.drop(lock, context);
    const std::size_t streams = driver().streams.destroy_all(context) - context->of_threads.size();
    context->of_threads.clear();
    const std::size_t events = driver().destroy_events(context);
    count_back(Count::kHeldStreams, streams);
    count_back(Count::kHeldEvents, events);
    count(Count::kLeftAtReset, streams + events + driver().memory->free_all(device));
    count_back(Count::kHeldContexts);
    context->legacy.capturing = 0;
    context->legacy.stuck_from = UINT64_MAX;
    context->broken = kSuccess;
    return kSuccess;
  });
}

Status stand_in_context_get(Context* context) {
  return initialized([&](Lock&) {
    if (context == nullptr) return kInvalidValue;
    *context = current;
    return kSuccess;
  });
}

Status stand_in_context_set(Context context) {
  return initialized([&](Lock&) {
    const auto& known = driver().contexts;
    if (context != nullptr && std::find(known.begin(), known.end(), context) == known.end()) {
      return kInvalidContext;
    }
    if (context != nullptr && context->retained == 0) return kInvalidContext;
    current = context;
    return kSuccess;
  });
}

Status stand_in_context_device(DeviceHandle* device) {
  return in_context([&](Lock&) {
    if (device == nullptr) return kInvalidValue;
    *device = current->device;
    return kSuccess;
  });
}

Status stand_in_pointer_attributes(unsigned count, int* attributes, void** values, DeviceAddress address) {
  // Unlike most calls, it wants no current context.
  return initialized([&](Lock&) {
    if (count == 0 || attributes == nullptr || values == nullptr) return kInvalidValue;
    const std::optional<Place> place = driver().memory->find(address, 1);
    const auto* const host = reinterpret_cast<const void*>(address);
    const bool pinned = !place && driver().pinning(host, 1) == stand_in::Pinning::kWhole;
    for (unsigned i = 0; i < count; ++i) {
      if (values[i] == nullptr) return kInvalidValue;
      if (attributes[i] == kPointerMemoryType) {
        const unsigned type = place ? kMemoryOfDevice : pinned ? 1 : 0;
        std::memcpy(values[i], &type, sizeof type);
      } else if (attributes[i] == kPointerIsManaged) {
        const unsigned managed = 0;
        std::memcpy(values[i], &managed, sizeof managed);
      } else if (attributes[i] == kPointerDeviceOrdinal) {
        // CU_DEVICE_INVALID for memory that the driver does not know: no error, as documented.
        const int device = place ? place->device : pinned ? 0 : -2;
        std::memcpy(values[i], &device, sizeof device);
      } else {
        return kInvalidValue;
      }
    }
    return kSuccess;
  });
}

Status stand_in_address_range(DeviceAddress* base, std::size_t* bytes, DeviceAddress at) {
  return in_context([&](Lock&) {
    const std::optional<Place> place = driver().memory->find(at, 1);
    if (!place) return stand_in::kNotFound;
    if (base != nullptr) *base = place->base;
    if (bytes != nullptr) *bytes = place->bytes;
    return kSuccess;
  });
}

/// CUDA's guide leaves it open whether these wait for what is queued on other streams.
void maybe_wait(Lock& lock, const char* what) {
  if (setting(Setting::kAllocationsWait) != 0) driver().streams.wait_inside(lock, current, nullptr, what);
}

Status stand_in_device_allocate(DeviceAddress* address, std::size_t bytes) {
  return queueing([&](Lock& lock) {
    if (address == nullptr || bytes == 0) return kInvalidValue;
    if (stand_in::comes_due(Setting::kFailAllocation)) return kOutOfMemory;
    maybe_wait(lock, "cuMemAlloc");
    return driver().memory->allocate(current->device, bytes, address);
  });
}

Status stand_in_device_free(DeviceAddress address) {
  return queueing([&](Lock& lock) {
    if (address == 0) return kSuccess;
    const std::optional<Place> place = driver().memory->find(address, 1);
    if (!place || place->base != address || place->opened) return kInvalidValue;
    // As the real one, it waits for all that is queued.
    driver().streams.wait_inside(lock, current, nullptr, "cuMemFree");
    return driver().memory->free(address);
  });
}

Status stand_in_host_allocate(void** address, std::size_t bytes, unsigned flags) {
  return queueing([&](Lock& lock) {
    if (address == nullptr || bytes == 0 || (flags & ~7U) != 0) return kInvalidValue;
    if (stand_in::comes_due(Setting::kFailHostAllocation)) return kOutOfMemory;
    maybe_wait(lock, "cuMemHostAlloc");
    void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return kOutOfMemory;
    driver().pinned[reinterpret_cast<std::uintptr_t>(at)] = {bytes, true};
    count(Count::kHostAllocations);
    count(Count::kHeldHostMemory);
    *address = at;
    return kSuccess;
  });
}

Status stand_in_host_free(void* address) {
  return queueing([&](Lock& lock) {
    if (address == nullptr) return kSuccess;
    auto& pinned = driver().pinned;
    auto found = pinned.find(reinterpret_cast<std::uintptr_t>(address));
    if (found == pinned.end() || !found->second.allocated) return kInvalidValue;
    driver().streams.wait_inside(lock, current, nullptr, "cuMemFreeHost");
    found = pinned.find(reinterpret_cast<std::uintptr_t>(address));
    if (found == pinned.end()) return kInvalidValue;
    munmap(address, found->second.bytes);
    pinned.erase(found);
    count_back(Count::kHeldHostMemory);
    return kSuccess;
  });
}

Status stand_in_host_register(void* address, std::size_t bytes, unsigned flags) {
  return queueing([&](Lock& lock) {
    if (address == nullptr || bytes == 0 || (flags & ~15U) != 0) return kInvalidValue;
    if (stand_in::comes_due(Setting::kFailRegistration)) return kNotSupported;
    maybe_wait(lock, "cuMemHostRegister");
    if (driver().pinning(address, bytes) != stand_in::Pinning::kNone) return kAlreadyRegistered;
    if (driver().memory->touches(address, bytes)) return kInvalidValue;
    // Pages that are not there cannot be locked.
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    const std::uintptr_t from = reinterpret_cast<std::uintptr_t>(address) / page * page;
    const std::size_t span = reinterpret_cast<std::uintptr_t>(address) + bytes - from;
    std::vector<unsigned char> there((span + page - 1) / page);
    if (mincore(reinterpret_cast<void*>(from), span, there.data()) != 0) return kInvalidValue;
    driver().pinned[reinterpret_cast<std::uintptr_t>(address)] = {bytes, false};
    count(Count::kRegistrations);
    count(Count::kHeldRegistrations);
    return kSuccess;
  });
}

Status stand_in_host_unregister(void* address) {
  return queueing([&](Lock& lock) {
    auto& pinned = driver().pinned;
    auto found = pinned.find(reinterpret_cast<std::uintptr_t>(address));
    if (found == pinned.end() || found->second.allocated) return stand_in::kNotRegistered;
    driver().streams.wait_inside(lock, current, nullptr, "cuMemHostUnregister");
    if (pinned.erase(reinterpret_cast<std::uintptr_t>(address)) == 0) return stand_in::kNotRegistered;
    count_back(Count::kHeldRegistrations);
    return kSuccess;
  });
}

Status stand_in_copy_to_device(DeviceAddress to, const void* from, std::size_t bytes, Stream stream) {
  return queueing([&](Lock& lock) {
    if (bytes == 0) return kSuccess;
    const std::optional<Place> place = driver().memory->find(to, bytes);
    if (!place || from == nullptr || driver().memory->touches(from, bytes)) return kInvalidValue;
    count(Count::kCopiesToDevice);
    count(Count::kBytesToDevice, bytes);
    return stand_in::copy(lock, place->shown, static_cast<const char*>(from), from, bytes, stream);
  });
}

Status stand_in_copy_to_host(void* to, DeviceAddress from, std::size_t bytes, Stream stream) {
  return queueing([&](Lock& lock) {
    if (bytes == 0) return kSuccess;
    const std::optional<Place> place = driver().memory->find(from, bytes);
    if (!place || to == nullptr || driver().memory->touches(to, bytes)) return kInvalidValue;
    count(Count::kCopiesToHost);
    count(Count::kBytesToHost, bytes);
    return stand_in::copy(lock, static_cast<char*>(to), place->shown, to, bytes, stream);
  });
}

Status stand_in_copy_within(DeviceAddress to, DeviceAddress from, std::size_t bytes, Stream stream) {
  return queueing([&](Lock& lock) {
    if (bytes == 0) return kSuccess;
    const std::optional<Place> target = driver().memory->find(to, bytes);
    const std::optional<Place> source = driver().memory->find(from, bytes);
    if (!target || !source || (to < from + bytes && from < to + bytes)) return kInvalidValue;
    count(Count::kCopiesWithin);
    count(Count::kBytesWithin, bytes);
    return stand_in::copy(lock, target->shown, source->shown, nullptr, bytes, stream);
  });
}

Status stand_in_stream_priorities(int* least, int* greatest) {
  return in_context([&](Lock&) {
    if (least != nullptr) *least = 0;
    if (greatest != nullptr) *greatest = -5;
    return kSuccess;
  });
}

Status stand_in_stream_create(Stream* stream, unsigned flags, int priority) {
  return queueing([&](Lock&) {
    if (stream == nullptr || (flags & ~kStreamNonBlocking) != 0) return kInvalidValue;
    *stream =
        driver().streams.create(current, (flags & kStreamNonBlocking) == 0, std::clamp(priority, -5, 0));
    count(Count::kStreams);
    count(Count::kHeldStreams);
    return kSuccess;
  });
}

Status stand_in_stream_destroy(Stream stream) {
  return queueing([&](Lock&) {
    if (reinterpret_cast<std::uintptr_t>(stream) <= 2) return kInvalidHandle;
    if (!driver().streams.exists(stream) || stream->legacy) return kInvalidHandle;
    driver().streams.destroy(stream);
    count_back(Count::kHeldStreams);
    return kSuccess;
  });
}

Status stand_in_stream_query(Stream handle) {
  return in_context([&](Lock&) {
    Stream stream = stand_in::stream_of(current, handle);
    if (const Status status = stand_in::accepts(stream); status != kSuccess) return status;
    return driver().streams.idle(stream) ? kSuccess : kNotReady;
  });
}

Status stand_in_stream_wait_event(Stream handle, Event event, unsigned flags) {
  return queueing([&](Lock&) {
    Stream stream = stand_in::stream_of(current, handle);
    if (const Status status = stand_in::accepts(stream); status != kSuccess) return status;
    if (driver().events.count(event) == 0) return kInvalidHandle;
    if (flags > 1) return kInvalidValue;
    // What the event records later is no concern of this wait.
    if (event->latest == nullptr) return kSuccess;
    driver().streams.queue(stream, std::make_unique<stand_in::WaitForRecord>(event->latest));
    return kSuccess;
  });
}

/// Where the host can read and write the value; null if it is no memory that a stream can reach.
static std::uint32_t* value_at(DeviceAddress address) {
  if (address % sizeof(std::uint32_t) != 0) return nullptr;
  const std::optional<Place> place = driver().memory->find(address, sizeof(std::uint32_t));
  if (place) return reinterpret_cast<std::uint32_t*>(place->shown);
  auto* const host = reinterpret_cast<std::uint32_t*>(address);
  return driver().pinning(host, sizeof *host) == stand_in::Pinning::kWhole ? host : nullptr;
}

Status stand_in_stream_wait_value(Stream handle, DeviceAddress address, std::uint32_t value, unsigned flags) {
  return queueing([&](Lock&) {
    if (setting(Setting::kNoStreamValues) != 0) return kNotSupported;
    Stream stream = stand_in::stream_of(current, handle);
    if (const Status status = stand_in::accepts(stream); status != kSuccess) return status;
    const std::uint32_t* const at = value_at(address);
    constexpr unsigned kFlush = 1U << 30;
    if (at == nullptr || (flags & ~kFlush) > 3) return kInvalidValue;
    driver().streams.queue(stream, std::make_unique<stand_in::WaitForValue>(at, value, flags & ~kFlush));
    count(Count::kValueWaits);
    return kSuccess;
  });
}

Status stand_in_stream_write_value(Stream handle, DeviceAddress address, std::uint32_t value,
                                   unsigned flags) {
  return queueing([&](Lock&) {
    if (setting(Setting::kNoStreamValues) != 0) return kNotSupported;
    Stream stream = stand_in::stream_of(current, handle);
    if (const Status status = stand_in::accepts(stream); status != kSuccess) return status;
    std::uint32_t* const at = value_at(address);
    if (at == nullptr || flags > 1) return kInvalidValue;
    driver().streams.queue(stream, std::make_unique<stand_in::WriteValue>(at, value));
    count(Count::kValueWrites);
    return kSuccess;
  });
}

Status stand_in_stream_capturing(Stream handle, int* status) {
  return in_context([&](Lock&) {
    Stream stream = stand_in::stream_of(current, handle);
    if (stream == nullptr) return kInvalidHandle;
    if (status == nullptr) return kInvalidValue;
    if (stream->legacy && driver().streams.captures(current)) return stand_in::kCaptureImplicit;
    *status = stream->capturing;
    return kSuccess;
  });
}

Status stand_in_event_create(Event* event, unsigned flags) {
  return queueing([&](Lock&) {
    if (event == nullptr || flags > 3) return kInvalidValue;
    *event = new CUevent_st{current, flags, nullptr};
    driver().events.insert(*event);
    count(Count::kEvents);
    count(Count::kHeldEvents);
    return kSuccess;
  });
}

Status stand_in_event_destroy(Event event) {
  return queueing([&](Lock&) {
    if (driver().events.erase(event) == 0) return kInvalidHandle;
    delete event;  // what waits for it keeps its record
    count_back(Count::kHeldEvents);
    return kSuccess;
  });
}

Status stand_in_event_record(Event event, Stream handle) {
  return queueing([&](Lock&) {
    if (driver().events.count(event) == 0) return kInvalidHandle;
    Stream stream = stand_in::stream_of(current, handle);
    if (const Status status = stand_in::accepts(stream); status != kSuccess) return status;
    if (stream->context != event->context) return kInvalidHandle;
    event->latest = std::make_shared<std::atomic<bool>>(false);
    driver().streams.queue(stream, std::make_unique<stand_in::Record>(event->latest));
    return kSuccess;
  });
}

Status stand_in_event_query(Event event) {
  return in_context([&](Lock&) {
    if (driver().events.count(event) == 0) return kInvalidHandle;
    if (event->context->broken != kSuccess) return event->context->broken;
    return event->latest == nullptr || *event->latest ? kSuccess : kNotReady;
  });
}

Status stand_in_ipc_handle(IpcHandle* handle, DeviceAddress address) {
  return in_context([&](Lock&) {
    if (handle == nullptr) return kInvalidValue;
    if (setting(Setting::kNoIpc) != 0) return kNotSupported;
    return driver().memory->handle(address, handle);
  });
}

Status stand_in_ipc_open(DeviceAddress* address, IpcHandle handle, unsigned flags) {
  return queueing([&](Lock&) {
    // The only flag there is, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, has to be given.
    if (address == nullptr || flags != 1) return kInvalidValue;
    if (setting(Setting::kNoIpc) != 0) return kNotSupported;
    return driver().memory->open(current->device, handle, address);
  });
}

Status stand_in_module_load(Module* module, const void* image) {
  return queueing([&](Lock& lock) -> Status {
    if (module == nullptr || image == nullptr) return kInvalidValue;
    if (stand_in::comes_due(Setting::kFailModule)) return kOutOfMemory;
    driver().streams.wait_inside(lock, current, nullptr, "cuModuleLoadData");
    stand_in::Kernels* made = nullptr;
    const int capability = static_cast<int>(setting(Setting::kCapability));
    if (const Status status = stand_in::load_kernels(image, capability, &made); status != kSuccess) {
      return status;
    }
    driver().modules.insert(made);
    count(Count::kHeldModules);
    *module = reinterpret_cast<Module>(made);
    return kSuccess;
  });
}

Status stand_in_module_unload(Module module) {
  return queueing([&](Lock& lock) {
    auto* const kernels = reinterpret_cast<stand_in::Kernels*>(module);
    if (driver().modules.count(kernels) == 0) return kInvalidHandle;
    driver().streams.wait_inside(lock, current, nullptr, "cuModuleUnload");
    driver().modules.erase(kernels);
    std::erase_if(driver().kernels, [&](const auto& one) { return one.second.of == kernels; });
    stand_in::unload_kernels(kernels);
    count_back(Count::kHeldModules);
    return kSuccess;
  });
}

Status stand_in_module_function(Function* function, Module module, const char* name) {
  return queueing([&](Lock&) -> Status {
    auto* const kernels = reinterpret_cast<stand_in::Kernels*>(module);
    if (function == nullptr || name == nullptr) return kInvalidValue;
    if (driver().modules.count(kernels) == 0) return kInvalidHandle;
    const stand_in::Entry* const entry = stand_in::find_kernel(kernels, name);
    if (entry == nullptr) return stand_in::kNotFound;
    driver().kernels.try_emplace(entry, stand_in::Kernel{kernels});
    *function = reinterpret_cast<Function>(const_cast<stand_in::Entry*>(entry));
    return kSuccess;
  });
}

Status stand_in_launch(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                       unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream handle,
                       void** parameters, void** extra) {
  return queueing([&](Lock& lock) -> Status {
    Stream stream = stand_in::stream_of(current, handle);
    if (const Status status = stand_in::accepts(stream); status != kSuccess) return status;
    if (function == nullptr) return kInvalidHandle;
    if (grid_x == 0 || block_x == 0 || block_x > 1024 || parameters == nullptr) return kInvalidValue;
    // Only what DDL launches is there.
    if (grid_y != 1 || grid_z != 1 || block_y != 1 || block_z != 1 || shared_bytes != 0 || extra != nullptr) {
      stand_in::die("cuLaunchKernel: the stand-in knows grids of one dimension only");
    }
    if (stand_in::comes_due(Setting::kFailLaunch)) return stand_in::kLaunchFailed;
    const bool fails = stand_in::comes_due(Setting::kFailLaunchLate);
    const auto* const entry = reinterpret_cast<const stand_in::Entry*>(function);
    if (!std::exchange(driver().kernels.at(entry).launched, true)) {
      // As with lazy loading of modules, which is CUDA's default.
      driver().streams.wait_inside(lock, current, nullptr, "the first launch of a kernel");
      if (current->broken != kSuccess) return current->broken;
    }
    driver().streams.queue(stream, std::make_unique<stand_in::Launch>(*entry, stand_in::Grid{grid_x, block_x},
                                                                      parameters, fails));
    count(Count::kLaunches);
    return kSuccess;
  });
}

Status stand_in_ipc_close(DeviceAddress address) {
  return queueing([&](Lock& lock) {
    const std::optional<Place> place = driver().memory->find(address, 1);
    if (!place || !place->opened || place->base != address) return kInvalidValue;
    driver().streams.wait_inside(lock, current, nullptr, "cuIpcCloseMemHandle");
    return driver().memory->close(address);
  });
}

}  // extern "C"

namespace {

/// A function of the list that is missing above makes the link fail here.
[[maybe_unused]] __attribute__((used)) const void* const kWholeList[] = {
#define F(member, symbol, parameters) reinterpret_cast<const void*>(&stand_in_##member),
    DDL_CUDA_DRIVER_FUNCTIONS(F)
#undef F
};

}  // namespace
}  // namespace ddl::cuda

extern "C" {

STAND_IN_EXPORT int stand_in_read(std::uint64_t address, void* host, std::size_t bytes) {
  return stand_in::write_shown(address, host, bytes, false);
}

STAND_IN_EXPORT int stand_in_write(std::uint64_t address, const void* host, std::size_t bytes) {
  return stand_in::write_shown(address, const_cast<void*>(host), bytes, true);
}

STAND_IN_EXPORT int stand_in_stick(void* handle, int stuck) {
  return stand_in::in_context([&](stand_in::Streams::Lock&) {
    stand_in::Stream stream = stand_in::stream_of(stand_in::current, static_cast<stand_in::Stream>(handle));
    if (stream == nullptr) return stand_in::kInvalidHandle;
    stream->stuck_from = stuck != 0 ? stand_in::driver().streams.next() : UINT64_MAX;
    stand_in::driver().streams.wake();
    return stand_in::kSuccess;
  });
}

STAND_IN_EXPORT int stand_in_capture(void* handle, int status) {
  return stand_in::in_context([&](stand_in::Streams::Lock&) {
    stand_in::Stream stream = stand_in::stream_of(stand_in::current, static_cast<stand_in::Stream>(handle));
    if (stream == nullptr) return stand_in::kInvalidHandle;
    stream->capturing = status;
    return stand_in::kSuccess;
  });
}

STAND_IN_EXPORT int stand_in_break_context(int status) {
  return stand_in::in_context([&](stand_in::Streams::Lock& lock) {
    stand_in::current->broken = status;
    stand_in::driver().streams.drop(lock, stand_in::current);
    return stand_in::kSuccess;
  });
}

STAND_IN_EXPORT int stand_in_synchronize(double seconds) {
  return stand_in::initialized([&](stand_in::Streams::Lock& lock) {
    return stand_in::driver().streams.wait(lock, nullptr, nullptr, "a test", seconds) ? stand_in::kSuccess
                                                                                      : ddl::cuda::kNotReady;
  });
}
}
