#include "cuda/cuda_executor.hpp"

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "ddl.h"
#include "support/error.hpp"
#include "support/stopwatch.hpp"

namespace ddl::cuda {
namespace {

/// Time for what is under way to end after an error. It is local: only a device that hangs takes longer.
constexpr double kDrainSeconds = 10;

class DeviceScope : public Executor::Scope {
 public:
  explicit DeviceScope(Device& device) : current_(device) {}

 private:
  Device::Current current_;
};

DeviceAddress address_of(const void* pointer) { return reinterpret_cast<DeviceAddress>(pointer); }

}  // namespace

CudaExecutor::CudaExecutor(Device& device, Stream stream, double timeout_s, double patience_s)
    : device_(device), timeout_s_(timeout_s), patience_s_(patience_s), order_(device, stream) {}

CudaExecutor::~CudaExecutor() {
  order_.complete();
  if (!streams_) return;
  more_streams_.push_back(*streams_);
  const Driver& driver = device_.driver();
  const auto start = Clock::now();
  const double most = std::min(kDrainSeconds, timeout_s_);
  for (const Device::Streams& set : more_streams_) {
    for (const Stream stream : {set.to_host, set.to_device, set.collective}) {
      while (driver.stream_query(stream) == kNotReady) {
        // Its streams are not used again, nor what is under way on them.
        if (seconds_since(start) > most) return;
        const timespec pause{0, 50'000};
        nanosleep(&pause, nullptr);
      }
    }
  }
  for (Lane& lane : lanes_) forget(lane.mark);
  for (const Device::Streams& set : more_streams_) device_.give_streams(set);
}

std::int32_t CudaExecutor::kind() const { return DDL_MEMORY_CUDA; }

std::unique_ptr<Executor::Scope> CudaExecutor::scope() { return std::make_unique<DeviceScope>(device_); }

void CudaExecutor::hold(void* stream) {
  const Device::Current current(device_);
  order_.hold(static_cast<Stream>(stream));
}

Device::Streams CudaExecutor::taken() {
  const Device::Streams made = device_.take_streams();
  const Driver& driver = device_.driver();
  for (const Stream stream : {made.to_host, made.to_device, made.collective}) {
    // Also where nothing is read: what was put on the caller's stream may still use the memory.
    driver.check(driver.stream_wait_event(stream, order_.ready(), 0),
                 "making a stream wait for the caller's");
  }
  return made;
}

const Device::Streams& CudaExecutor::streams() {
  if (!streams_) {
    streams_ = taken();
    lanes_[static_cast<int>(CopyDirection::kToHost)].stream = streams_->to_host;
    lanes_[static_cast<int>(CopyDirection::kFromHost)].stream = streams_->to_device;
    lanes_[static_cast<int>(CopyDirection::kWithin)].stream = streams_->collective;
  }
  return *streams_;
}

Stream CudaExecutor::tier_stream(std::size_t tier) {
  if (tier == 0) return collective();
  while (more_streams_.size() < tier) more_streams_.push_back(taken());
  return more_streams_[tier - 1].collective;
}

void CudaExecutor::copy_within(void* to, const void* from, std::size_t bytes, Stream stream) {
  if (bytes == 0) return;
  device_.driver().check(device_.driver().copy_within(address_of(to), address_of(from), bytes, stream),
                         "copying within the device");
}

void CudaExecutor::after(const Mark& mark, Stream later) {
  device_.driver().check(device_.driver().stream_wait_event(later, mark.event_, 0), "ordering two streams");
}

Stream CudaExecutor::collective() { return streams().collective; }
Stream CudaExecutor::to_host() { return streams().to_host; }
Stream CudaExecutor::to_device() { return streams().to_device; }

CudaExecutor::Lane& CudaExecutor::lane(CopyDirection direction) {
  streams();
  return lanes_[static_cast<int>(direction)];
}

void CudaExecutor::order(Stream earlier, Stream later) {
  const Driver& driver = device_.driver();
  // The wait is for what is recorded now: the event may be used again at once.
  const Event event = device_.take_event();
  Status status = driver.event_record(event, earlier);
  if (status == kSuccess) status = driver.stream_wait_event(later, event, 0);
  device_.give_event(event);
  driver.check(status, "ordering two streams");
}

Executor::Ticket CudaExecutor::post(void* to, const void* from, std::size_t bytes, CopyDirection direction) {
  if (bytes == 0) return kDone;
  Lane& here = lane(direction);
  const Driver& driver = device_.driver();
  switch (direction) {
    case CopyDirection::kToHost:
      driver.check(driver.copy_to_host(to, address_of(from), bytes, here.stream), "copying from the device");
      break;
    case CopyDirection::kFromHost:
      driver.check(driver.copy_to_device(address_of(to), from, bytes, here.stream), "copying to the device");
      break;
    case CopyDirection::kWithin:
      driver.check(driver.copy_within(address_of(to), address_of(from), bytes, here.stream),
                   "copying within the device");
      break;
  }
  // The direction in the lowest bits; numbers begin at 1, so that none is kDone.
  return (++here.posted << 2) | static_cast<Ticket>(direction);
}

bool CudaExecutor::test(Ticket ticket) {
  Lane& here = lanes_[ticket & 3];
  const std::uint64_t number = ticket >> 2;
  if (here.ended >= number) return true;
  // One event for all that was posted since the last.
  if (!here.mark.set()) {
    record(here.mark, here.stream);
    here.marked = here.posted;
  }
  if (!reached(here.mark, "a copy", true)) return false;
  here.ended = here.marked;
  return here.ended >= number;
}

void CudaExecutor::record(Mark& mark, Stream stream) {
  const Driver& driver = device_.driver();
  if (mark.event_ == nullptr) mark.event_ = device_.take_event();
  driver.check(driver.event_record(mark.event_, stream), "recording an event");
  if (!waiting_since_) waiting_since_ = Clock::now();
}

void CudaExecutor::forget(Mark& mark) {
  if (mark.event_ != nullptr) device_.give_event(mark.event_);
  mark.event_ = nullptr;
}

bool CudaExecutor::reached(Mark& mark, const char* what, bool local) {
  const Driver& driver = device_.driver();
  const Status status = driver.event_query(mark.event_);
  if (status == kSuccess) {
    forget(mark);
    waiting_since_.reset();
    ready_ = true;
    return true;
  }
  if (status != kNotReady) driver.check(status, what);
  const auto now = Clock::now();
  if (!waiting_since_) waiting_since_ = now;
  // The clock of what is queued behind the caller's work runs from when it is its turn.
  const bool turn = ready_;
  if (turn != input_ready()) waiting_since_ = now;
  const double limit_s = local && ready_ ? timeout_s_ : 2 * patience_s_;
  if (std::chrono::duration<double>(now - *waiting_since_).count() > limit_s) too_late(what, limit_s);
  return false;
}

bool CudaExecutor::input_ready() {
  if (!ready_) ready_ = device_.driver().event_query(order_.ready()) == kSuccess;
  return ready_;
}

void CudaExecutor::too_late(const char* what, double limit_s) {
  char limit[32];
  std::snprintf(limit, sizeof limit, "%g s", limit_s);
  const std::string passed = std::string(" for ") + limit + " on " + device_.name();
  if (!input_ready()) {
    throw Error(DDL_ERR_TIMEOUT, "the stream that a call was made on has not come to it" + passed,
                Error::kOnThisRank,
                "look at what the program has put on the stream before, or raise "
                "-patience in DDL_OPTIONS");
  }
  throw Error(DDL_ERR_TIMEOUT, std::string(what) + " has not ended" + passed, Error::kOnThisRank,
              "look at the state of the GPUs (nvidia-smi, the kernel's log for Xid), or raise "
              "-timeout in DDL_OPTIONS");
}

}  // namespace ddl::cuda
