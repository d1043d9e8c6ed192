#include "device_order.hpp"

#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "ddl.h"
#include "status.hpp"

namespace ddl_torch {
namespace {

using Clock = std::chrono::steady_clock;

// Within this time the thread only yields.
constexpr auto kAlert = std::chrono::microseconds(200);
constexpr auto kPause = std::chrono::microseconds(50);
constexpr auto kDrainLimit = std::chrono::seconds(10);

c10::Stream CurrentStream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

// torch knows a stream that is not its own by its address.
void* AddressOf(const c10::Stream& stream) { return reinterpret_cast<void*>(stream.id()); }

// Streams that no group has any more. They are kept for the next one: torch's allocator asks, when memory is
// freed, how far the streams are that have used it, which may be long after the end of their group.
struct IdleStreams {
  std::mutex mutex;
  std::map<c10::Device, std::vector<c10::Stream>, bool (*)(c10::Device, c10::Device)> of{
      [](c10::Device a, c10::Device b) {
        return std::pair(a.type(), a.index()) < std::pair(b.type(), b.index());
      }};

  static IdleStreams& Instance() {
    // Never destroyed: groups may be destroyed while the process exits.
    static auto* const made = new IdleStreams;
    return *made;
  }
};

c10::Stream TakeStream(c10::Device device) {
  IdleStreams& idle = IdleStreams::Instance();
  {
    const std::lock_guard<std::mutex> lock(idle.mutex);
    std::vector<c10::Stream>& streams = idle.of[device];
    if (!streams.empty()) {
      const c10::Stream taken = streams.back();
      streams.pop_back();
      return taken;
    }
  }
  void* stream = nullptr;
  Check(ddl_stream_create(device.index(), &stream));
  return c10::Stream(c10::Stream::UNSAFE, device, reinterpret_cast<c10::StreamId>(stream));
}

void GiveStream(c10::Stream stream) {
  IdleStreams& idle = IdleStreams::Instance();
  const std::lock_guard<std::mutex> lock(idle.mutex);
  idle.of[stream.device()].push_back(stream);
}

template <class Done>
void WaitFor(const Done& done, c10::Device device, std::chrono::duration<double> limit) {
  const auto start = Clock::now();
  while (!done()) {
    const auto waited = Clock::now() - start;
    if (waited > limit) {
      C10_THROW_ERROR(DistBackendError, "what was put on a stream of " + device.str() +
                                            " is not done within the time limit; look at the state of the "
                                            "GPU, or allow more time in init_process_group");
    }
    if (waited < kAlert) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kPause);
    }
  }
}

}  // namespace

DeviceStreams::DeviceStreams(c10::Device device)
    : device_(device), calls_(TakeStream(device)), messages_(TakeStream(device)), idle_(TakeStream(device)) {}

DeviceStreams::~DeviceStreams() {
  for (const c10::Stream stream : {calls_, messages_, idle_}) GiveStream(stream);
}

DeviceOrder::DeviceOrder(std::shared_ptr<DeviceStreams> streams)
    : streams_(std::move(streams)), ready_(streams_->device().type()) {
  const c10::Device device = streams_->device();
  const c10::DeviceGuard guard(device);
  ready_.record(CurrentStream(device));
}

void DeviceOrder::Make(const std::function<void(void* stream)>& call,
                       std::chrono::duration<double> limit) const {
  const c10::Stream stream = streams_->calls();
  const c10::StreamGuard guard(stream);
  ready_.block(stream);
  try {
    call(AddressOf(stream));
    Finish(stream, limit);
  } catch (...) {
    Drain(stream);
    throw;
  }
}

at::Tensor PinnedLike(const at::Tensor& tensor) {
  const auto options = at::TensorOptions().dtype(tensor.scalar_type()).device(at::kCPU);
  return at::empty(tensor.sizes(), options.pinned_memory(tensor.numel() > 0));
}

void Finish(const c10::Stream& stream, std::chrono::duration<double> limit) {
  WaitFor([&] { return stream.query(); }, stream.device(), limit);
}

void Finish(const c10::Event& event, std::chrono::duration<double> limit) {
  WaitFor([&] { return event.query(); }, event.device(), limit);
}

void Drain(const c10::Stream& stream) {
  try {
    Finish(stream, kDrainLimit);
  } catch (const std::exception&) {
    // The first error is the one to tell.
  }
}

}  // namespace ddl_torch
