#include "device_order.hpp"

#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <limits>
#include <map>
#include <thread>
#include <utility>

#include "pinned_pool.hpp"
#include "status.hpp"

namespace ddl_torch {
namespace {

using Clock = std::chrono::steady_clock;

// Within this time the thread only yields.
constexpr auto kAlert = std::chrono::microseconds(200);
constexpr auto kPause = std::chrono::microseconds(50);
constexpr auto kSpoilLimit = std::chrono::seconds(10);

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
    : device_(device), calls_(TakeStream(device)), messages_(TakeStream(device)), ends_(TakeStream(device)) {}

DeviceStreams::~DeviceStreams() {
  for (const c10::Stream stream : {calls_, messages_, ends_}) GiveStream(stream);
}

c10::Stream DeviceStreams::TakeEnd() const { return TakeStream(device_); }

void DeviceStreams::GiveEnd(c10::Stream stream) { GiveStream(stream); }

DeviceOrder::DeviceOrder(std::shared_ptr<DeviceStreams> streams, const Tensors& tensors, Kind kind)
    : streams_(std::move(streams)),
      kind_(kind),
      end_stream_(kind == Kind::kMessage ? streams_->TakeEnd() : streams_->ends()),
      ready_(streams_->device().type()),
      over_(streams_->device().type()) {
  const c10::Device device = streams_->device();
  const c10::DeviceGuard guard(device);
  ready_.record(CurrentStream(device));
  if (first()) {
    over_.record(end_stream_);
    return;
  }
  latch_ = PinnedPool::Instance().MakeLatch(device.index());
  try {
    Check(ddl_latch_wait(latch_, AddressOf(end_stream_)));
    // Other streams wait for this event, by which CUDA knows that they depend on each other.
    over_.record(end_stream_);
    const c10::impl::VirtualGuardImpl torch_streams(device.type());
    for (const at::Tensor& tensor : tensors) {
      torch_streams.recordDataPtrOnStream(tensor.storage().data_ptr(), end_stream_);
    }
  } catch (...) {
    End();
    throw;
  }
}

DeviceOrder::~DeviceOrder() { End(); }

void DeviceOrder::Hold() const { over_.block(CurrentStream(streams_->device())); }

void DeviceOrder::End() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (latch_ == 0) return;
  PinnedPool::Instance().ReleaseLatch(std::exchange(latch_, 0));
  if (kind_ == Kind::kMessage) streams_->GiveEnd(end_stream_);
}

void DeviceOrder::AfterEnd(const std::function<void()>& fill) const {
  const c10::StreamGuard guard(end_stream_);
  fill();
}

void DeviceOrder::Make(const std::function<void(void* stream)>& call,
                       std::chrono::duration<double> limit) const {
  const c10::Stream stream = streams_->calls();
  const c10::StreamGuard guard(stream);
  // Not before this call's turn: what it waits for may itself be waiting for the call before.
  ready_.block(stream);
  call(AddressOf(stream));
  Finish(stream, limit);
}

void DeviceOrder::Spoil(const Tensors& outputs) const {
  try {
    // Until then others may be using them.
    Finish(ready_, kSpoilLimit);
    const c10::Stream stream = kind_ == Kind::kMessage ? streams_->messages() : streams_->calls();
    const c10::StreamGuard guard(stream);
    for (const at::Tensor& output : outputs) {
      if (output.is_floating_point() || output.is_complex()) {
        output.fill_(std::numeric_limits<double>::quiet_NaN());
      }
    }
    Finish(stream, kSpoilLimit);
  } catch (const std::exception&) {
    // The device is what has failed: nobody can read from it.
  }
}

at::Tensor AsIssued(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.device().is_cpu() || tensor.device().is_meta() ||
      tensor.layout() != at::kStrided || tensor.numel() == 0 || tensor.is_conj() || tensor.is_neg()) {
    return tensor;
  }
  return at::for_blob(tensor.data_ptr(), tensor.sizes())
      .strides(tensor.strides())
      .options(at::TensorOptions().dtype(tensor.scalar_type()).device(tensor.device()))
      .target_device(tensor.device())
      .make_tensor();
}

Tensors AsIssued(const Tensors& tensors) {
  Tensors all;
  for (const at::Tensor& tensor : tensors) all.push_back(AsIssued(tensor));
  return all;
}

void Finish(const c10::Stream& stream, std::chrono::duration<double> limit) {
  WaitFor([&] { return stream.query(); }, stream.device(), limit);
}

void Finish(const c10::Event& event, std::chrono::duration<double> limit) {
  WaitFor([&] { return event.query(); }, event.device(), limit);
}

}  // namespace ddl_torch
