// A device of PyTorch on the stand-in for CUDA's driver: its memory is out of the host's reach, its streams
// are late, and its allocator gives memory that was freed to the next that asks, as that of CUDA does. What
// it cannot compute, which is everything, the processor computes on copies.
//
// Like a CUDA device in what DDL's backend relies on: a stream that is not torch's own has its address for a
// number, work is done in the order of a stream alone, and memory is kept for the streams that
// recordDataPtrOnStream names.
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_copy_from.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>
#include <unistd.h>

#include <algorithm>
#include <list>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "cuda/driver_functions.hpp"

namespace ddl::cuda {

#define F(member, symbol, parameters) extern "C" Status driver_##member parameters __asm__(symbol);
DDL_CUDA_DRIVER_FUNCTIONS(F)
#undef F

}  // namespace ddl::cuda

namespace {

using namespace ddl::cuda;

constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;
constexpr std::size_t kGranule = 512;
/// Fewer than CUDA's 32: they come round soon.
constexpr std::size_t kPool = 3;

void check(Status status, const char* what) {
  TORCH_CHECK(status == kSuccess, what, ": the stand-in driver says ", status);
}

/// Before any call of this thread.
void enter() {
  static const Context context = [] {
    check(driver_init(0), "cuInit");
    Context made = nullptr;
    check(driver_primary_retain(&made, 0), "cuDevicePrimaryCtxRetain");
    return made;
  }();
  check(driver_context_set(context), "cuCtxSetCurrent");
}

thread_local Stream current = nullptr;

Stream address_of(const c10::Stream& stream) { return reinterpret_cast<Stream>(stream.id()); }
c10::Stream named(Stream stream) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, 0), reinterpret_cast<c10::StreamId>(stream));
}

void wait_for(Stream stream) {
  for (Status status; (status = driver_stream_query(stream)) != kSuccess; usleep(50)) {
    if (status != kNotReady) check(status, "cuStreamQuery");
  }
}

Event record_on(Stream stream) {
  Event event = nullptr;
  check(driver_event_create(&event, kEventDisableTiming), "cuEventCreate");
  check(driver_event_record(event, stream), "cuEventRecord");
  return event;
}

/// Memory that is used again when the streams that were named for it have come to the place where it was
/// freed.
class Cache {
 public:
  explicit Cache(bool of_host) : of_host_(of_host) {}

  void* take(std::size_t bytes) {
    enter();
    const std::size_t size = std::max<std::size_t>((bytes + kGranule - 1) / kGranule * kGranule, kGranule);
    std::unique_lock lock(mutex_);
    for (auto one = waiting_.begin(); one != waiting_.end();) {
      auto& events = one->second;
      while (!events.empty() && driver_event_query(events.back()) == kSuccess) {
        driver_event_destroy(events.back());
        events.pop_back();
      }
      if (events.empty()) {
        Block& block = blocks_.at(one->first);
        free_[{block.stream, block.size}].push_back(one->first);
        one = waiting_.erase(one);
      } else {
        ++one;
      }
    }
    const Stream stream = of_host_ ? nullptr : current;
    auto& fitting = free_[{stream, size}];
    if (!fitting.empty()) {
      void* const found = fitting.back();
      fitting.pop_back();
      return found;
    }
    // It may wait for streams, and what they wait for may have to give memory back.
    lock.unlock();
    void* made = nullptr;
    if (of_host_) {
      check(driver_host_allocate(&made, size, kHostPortable), "cuMemHostAlloc");
    } else {
      DeviceAddress address = 0;
      check(driver_device_allocate(&address, size), "cuMemAlloc");
      made = reinterpret_cast<void*>(address);
    }
    lock.lock();
    blocks_[made] = Block{stream, size, {}};
    return made;
  }

  /// The block is in use on the stream, too.
  void name(const void* address, Stream stream) {
    const std::lock_guard lock(mutex_);
    const auto block = find(address);
    if (block != blocks_.end() && (of_host_ || stream != block->second.stream)) {
      block->second.users.push_back(stream);
    }
  }

  void give(void* address) {
    enter();
    const std::lock_guard lock(mutex_);
    Block& block = blocks_.at(address);
    std::vector<Event> events;
    for (const Stream user : std::exchange(block.users, {})) events.push_back(record_on(user));
    if (events.empty()) {
      free_[{block.stream, block.size}].push_back(address);
    } else {
      waiting_.emplace_back(address, std::move(events));
    }
  }

  bool has(const void* address) {
    const std::lock_guard lock(mutex_);
    return find(address) != blocks_.end();
  }

 private:
  struct Block {
    Stream stream;  ///< current when it was taken; the order of its reuse
    std::size_t size;
    std::vector<Stream> users;
  };

  std::map<void*, Block>::iterator find(const void* address) {
    auto next = blocks_.upper_bound(const_cast<void*>(address));
    if (next == blocks_.begin()) return blocks_.end();
    --next;
    return static_cast<const char*>(address) < static_cast<char*>(next->first) + next->second.size
               ? next
               : blocks_.end();
  }

  const bool of_host_;
  std::mutex mutex_;
  std::map<void*, Block> blocks_;
  std::map<std::pair<Stream, std::size_t>, std::vector<void*>> free_;
  std::list<std::pair<void*, std::vector<Event>>> waiting_;
};

Cache& device_cache() {
  static auto* const cache = new Cache(false);
  return *cache;
}
Cache& host_cache() {
  static auto* const cache = new Cache(true);
  return *cache;
}

class DeviceAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* const memory = bytes == 0 ? nullptr : device_cache().take(bytes);
    return {memory, memory, &give, c10::Device(kType, 0)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    enter();
    check(driver_copy_within(reinterpret_cast<DeviceAddress>(to), reinterpret_cast<DeviceAddress>(from),
                             bytes, current),
          "cuMemcpyDtoDAsync");
  }

 private:
  static void give(void* memory) {
    if (memory != nullptr) device_cache().give(memory);
  }
};

class HostAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* const memory = host_cache().take(bytes);
    return {memory, memory, &give, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  static void give(void* memory) { host_cache().give(memory); }
};

DeviceAllocator device_allocator;
HostAllocator host_allocator;
REGISTER_ALLOCATOR(kType, &device_allocator);

struct Guard final : public c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device) const override { return getDevice(); }
  c10::Device getDevice() const override { return c10::Device(kType, 0); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  c10::Stream getStream(c10::Device) const override { return named(current); }
  c10::Stream getDefaultStream(c10::Device) const override { return named(nullptr); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return getNewStream(device);
  }
  c10::Stream getNewStream(c10::Device, int = 0) const override {
    static std::mutex mutex;
    static std::vector<Stream> pool;
    static std::size_t next = 0;
    enter();
    const std::lock_guard lock(mutex);
    while (pool.size() < kPool) {
      Stream made = nullptr;
      check(driver_stream_create(&made, kStreamNonBlocking, 0), "cuStreamCreate");
      pool.push_back(made);
    }
    return named(pool[next++ % kPool]);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return named(std::exchange(current, address_of(stream)));
  }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    enter();
    if (*event == nullptr) {
      *event = record_on(address_of(stream));
    } else {
      check(driver_event_record(static_cast<Event>(*event), address_of(stream)), "cuEventRecord");
    }
  }
  void block(void* event, const c10::Stream& stream) const override {
    enter();
    if (event != nullptr) {
      check(driver_stream_wait_event(address_of(stream), static_cast<Event>(event), 0), "cuStreamWaitEvent");
    }
  }
  bool queryEvent(void* event) const override {
    enter();
    if (event == nullptr) return true;
    const Status status = driver_event_query(static_cast<Event>(event));
    if (status != kNotReady) check(status, "cuEventQuery");
    return status == kSuccess;
  }
  void synchronizeEvent(void* event) const override {
    while (!queryEvent(event)) usleep(50);
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    if (event != nullptr) driver_event_destroy(static_cast<Event>(event));
  }
  bool queryStream(const c10::Stream& stream) const override {
    enter();
    const Status status = driver_stream_query(address_of(stream));
    if (status != kNotReady) check(status, "cuStreamQuery");
    return status == kSuccess;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    enter();
    wait_for(address_of(stream));
  }
  void synchronizeDevice(const c10::DeviceIndex) const override {
    enter();
    wait_for(nullptr);
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    device_cache().name(data.get(), address_of(stream));
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : public at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
  at::Device getDeviceFromPtr(void*) const override { return c10::Device(kType, 0); }
  bool isPinnedPtr(const void* data) const override { return host_cache().has(data); }
  at::Allocator* getPinnedMemoryAllocator() const override { return &host_allocator; }
  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t bytes) const override {
    c10::DataPtr made = device_allocator.allocate(bytes);
    const std::size_t kept = std::min(bytes, storage.nbytes());
    if (kept > 0) device_allocator.copy_data(made.get(), storage.data(), kept);
    storage.set_data_ptr_noswap(std::move(made));
    storage.set_nbytes(bytes);
  }
};
[[maybe_unused]] const bool hooked = [] {
  static Hooks hooks;
  at::RegisterPrivateUse1HooksInterface(&hooks);
  return true;
}();

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &device_allocator, kKeys, c10::dtype_or_default(type), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> type,
                         std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &device_allocator, kKeys,
                                           c10::dtype_or_default(type));
}

std::size_t span_of(const at::Tensor& tensor) {
  return at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize());
}

void to_host(void* to, const at::Tensor& from, std::size_t bytes, bool wait) {
  check(driver_copy_to_host(to, reinterpret_cast<DeviceAddress>(from.const_data_ptr()), bytes, current),
        "cuMemcpyDtoHAsync");
  host_cache().name(to, current);
  if (wait) wait_for(current);
}

/// The host's memory may change at once.
void from_host(const at::Tensor& to, const void* from, std::size_t bytes) {
  void* const copy = host_cache().take(bytes);
  std::memcpy(copy, from, bytes);
  check(driver_copy_to_device(reinterpret_cast<DeviceAddress>(to.data_ptr()), copy, bytes, current),
        "cuMemcpyHtoDAsync");
  host_cache().name(copy, current);
  host_cache().give(copy);
}

/// The same elements in the host's memory, with the gaps between them.
at::Tensor on_host(const at::Tensor& tensor) {
  at::Tensor copy = at::empty({static_cast<int64_t>(span_of(tensor))}, at::TensorOptions(at::kByte));
  to_host(copy.data_ptr(), tensor, copy.nbytes(), true);
  auto* const memory = new at::Tensor(copy);
  at::Tensor made = at::from_blob(
      copy.data_ptr(), tensor.sizes(), tensor.strides(), [memory](void*) { delete memory; },
      at::TensorOptions(tensor.scalar_type()));
  return tensor.is_conj() ? made.conj() : made;
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& to, bool non_blocking) {
  enter();
  if (to.numel() == 0) return to;
  const at::Tensor from = self.expand(to.sizes());
  const bool alike = from.scalar_type() == to.scalar_type() && from.is_conj() == to.is_conj() &&
                     from.is_contiguous() && to.is_contiguous();
  const bool from_device = from.device().type() == kType;
  const bool to_device = to.device().type() == kType;
  const std::size_t bytes = to.nbytes();
  if (alike && from_device && to_device) {
    device_allocator.copy_data(to.data_ptr(), from.const_data_ptr(), bytes);
  } else if (alike && from_device) {
    to_host(to.data_ptr(), from, bytes, !(non_blocking && host_cache().has(to.const_data_ptr())));
  } else if (alike) {
    // From memory that is not pinned the driver waits for the copy.
    check(driver_copy_to_device(reinterpret_cast<DeviceAddress>(to.data_ptr()), from.const_data_ptr(), bytes,
                                current),
          "cuMemcpyHtoDAsync");
    host_cache().name(from.const_data_ptr(), current);
    if (!non_blocking) wait_for(current);
  } else {
    const at::Tensor source = from_device ? on_host(from) : from;
    if (!to_device) {
      to.copy_(source);
    } else {
      at::Tensor target = on_host(to);
      target.copy_(source);
      from_host(to, target.const_data_ptr(), span_of(to));
    }
  }
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  at::native::resize_(to, from.sizes(), std::nullopt);
  return copy_from(from, to, false);
}

at::Scalar local_scalar(const at::Tensor& tensor) { return on_host(tensor).item(); }

void by_the_processor(const c10::OperatorHandle& call, torch::jit::Stack* stack) {
  at::native::cpu_fallback(call, stack);
}

at::Tensor& set_storage(at::Tensor& tensor, at::Storage storage, int64_t offset, at::IntArrayRef size,
                        at::IntArrayRef stride) {
  return at::native::set_storage_cpu_(tensor, std::move(storage), offset, size, stride);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("_copy_from", &copy_from);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
  library.impl("_local_scalar_dense", &local_scalar);
  library.impl("view", static_cast<at::Tensor (*)(const at::Tensor&, at::IntArrayRef)>(&at::native::view));
  library.impl("as_strided", &at::native::as_strided_tensorimpl);
  library.impl("_reshape_alias", &at::native::_reshape_alias);
  library.impl("view_as_real", &at::native::view_as_real);
  library.impl("view_as_complex", &at::native::view_as_complex);
  library.impl("resize_", &at::native::resize_);
  library.impl("set_.source_Storage_storage_offset", &set_storage);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&by_the_processor>());
}
