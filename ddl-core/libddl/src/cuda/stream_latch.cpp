#include "cuda/stream_latch.hpp"

#include <mutex>
#include <new>
#include <vector>

namespace ddl::cuda {
namespace {

/// A device that polls a word should not be given the neighbour's cache line.
constexpr std::size_t kWordBytes = 128;
/// Taken at once, for as many latches as are there at a time: taking more later might wait for streams that
/// wait for latches.
constexpr std::size_t kWords = 4096;

}  // namespace

struct StreamLatch::Word {
  std::atomic<std::uint32_t>* value;
  std::uint32_t used;  ///< the number of the last latch that took it

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

StreamLatch::Word& StreamLatch::take_word(const Driver& driver) {
  Word::Pool& pool = Word::pool();
  const std::lock_guard lock(pool.mutex);
  if (pool.free.empty()) {
    void* words = nullptr;
    driver.check(driver.host_allocate(&words, kWords * kWordBytes, kHostPortable),
                 "taking pinned host memory");
    for (std::size_t at = 0; at < kWords; ++at) {
      auto* const value = new (static_cast<char*>(words) + at * kWordBytes) std::atomic<std::uint32_t>(0);
      pool.free.push_back(new Word{value, 0});
    }
  }
  Word& taken = *pool.free.back();
  pool.free.pop_back();
  return taken;
}

StreamLatch::StreamLatch(const Driver& driver)
    : driver_(driver), word_(take_word(driver)), number_(++word_.used) {}

void StreamLatch::hold(Stream stream) {
  if (released_.load(std::memory_order_acquire)) return;
  // Where release() comes in between, the word has its number already.
  driver_.check(driver_.stream_wait_value(stream, reinterpret_cast<DeviceAddress>(word_.value), number_,
                                          kWaitGreaterOrEqual),
                "making a stream wait (DDL needs stream memory operations)");
}

void StreamLatch::release() {
  if (released_.exchange(true, std::memory_order_acq_rel)) return;
  word_.value->store(number_, std::memory_order_seq_cst);
  Word::Pool& pool = Word::pool();
  const std::lock_guard lock(pool.mutex);
  pool.free.push_back(&word_);
}

}  // namespace ddl::cuda
