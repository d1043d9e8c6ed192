#pragma once

#include <atomic>
#include <cstdint>

#include "cuda/device.hpp"

namespace ddl::cuda {

/**
 * Holds streams until it is released, once. A stream that waits looks at a word of pinned host memory: that
 * needs no event, which could be recorded only when the work that is waited for is on a stream. Any thread's.
 */
class StreamLatch {
 public:
  /// In a thread with a current device. @throws Error (DDL_ERR_DEVICE)
  explicit StreamLatch(const Driver& driver);
  /// Releases it.
  ~StreamLatch() { release(); }
  StreamLatch(const StreamLatch&) = delete;
  StreamLatch& operator=(const StreamLatch&) = delete;

  /// What a stream is given from now on begins when the latch is released. @throws Error (DDL_ERR_DEVICE)
  void hold(Stream stream);
  /// Streams go on. Harmless when repeated.
  void release();

 private:
  /// A word that latches use one after the other: each waits for a greater number than the one before.
  struct Word;
  static Word& take_word(const Driver& driver);

  const Driver& driver_;
  Word& word_;
  const std::uint32_t number_;
  std::atomic<bool> released_ = false;
};

}  // namespace ddl::cuda
