#include "cuda/stream_order.hpp"

#include <mutex>
#include <new>
#include <vector>

#include "support/error.hpp"

namespace ddl::cuda {
namespace {

/// A device that polls a word should not be given the neighbour's cache line.
constexpr std::size_t kWordBytes = 128;
constexpr std::size_t kPageBytes = 4096;

}  // namespace

struct StreamOrder::Word {
  std::atomic<std::uint32_t>* value;
  std::uint32_t used;  ///< the number of the last call that took it

  struct Pool {
    std::mutex mutex;
    std::vector<Word*> free;
  };
  static Pool& pool() {
    // Never destroyed: streams may still look at the words while the process exits.
    static auto* const made = new Pool;
    return *made;
  }
};

StreamOrder::Word& StreamOrder::take_word(const Driver& driver) {
  Word::Pool& pool = Word::pool();
  const std::lock_guard lock(pool.mutex);
  if (pool.free.empty()) {
    void* page = nullptr;
    driver.check(driver.host_allocate(&page, kPageBytes, kHostPortable), "taking pinned host memory");
    for (std::size_t at = 0; at < kPageBytes; at += kWordBytes) {
      auto* const value = new (static_cast<char*>(page) + at) std::atomic<std::uint32_t>(0);
      pool.free.push_back(new Word{value, 0});
    }
  }
  Word& taken = *pool.free.back();
  pool.free.pop_back();
  return taken;
}

StreamOrder::StreamOrder(Device& device, Stream stream)
    : device_(device), word_(take_word(device.driver())), number_(++word_.used) {
  const Driver& driver = device.driver();
  try {
    int capturing = kCaptureNone;
    driver.check(driver.stream_capturing(stream, &capturing), "asking for the state of a stream");
    if (capturing != kCaptureNone) {
      throw Error(
          DDL_ERR_STATE,
          "the stream is being captured into a CUDA graph, but a call of DDL is made by the host, with other "
          "ranks; in ddl_call; capture what lies before and after it, as two graphs");
    }
    ready_ = device.take_event();
    driver.check(driver.event_record(ready_, stream), "recording an event");
  } catch (...) {
    complete();
    if (ready_ != nullptr) device_.give_event(ready_);
    throw;
  }
}

StreamOrder::~StreamOrder() {
  complete();
  if (ready_ != nullptr) device_.give_event(ready_);
}

void StreamOrder::hold(Stream stream) {
  if (complete_.load(std::memory_order_acquire)) return;
  const Driver& driver = device_.driver();
  // Where complete() comes in between, the word has its number already.
  const Status status = driver.stream_wait_value(stream, reinterpret_cast<DeviceAddress>(word_.value),
                                                 number_, kWaitGreaterOrEqual);
  driver.check(status, "making a stream wait for a call (DDL's calls need stream memory operations)");
}

void StreamOrder::complete() {
  if (complete_.exchange(true, std::memory_order_acq_rel)) return;
  word_.value->store(number_, std::memory_order_seq_cst);
  Word::Pool& pool = Word::pool();
  const std::lock_guard lock(pool.mutex);
  pool.free.push_back(&word_);
}

}  // namespace ddl::cuda
