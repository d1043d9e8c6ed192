#pragma once

#include <atomic>
#include <cstdint>

#include "cuda/device.hpp"

namespace ddl::cuda {

/**
 * Where a call stands among the work of streams: after what its stream had been given when the call was made,
 * and before what other streams are given once they were told to wait for it. The host waits for neither.
 *
 * A stream that waits looks at a word of pinned host memory, which is set when the call is over: that needs
 * no event, which could be recorded only when a thread of DDL has put the call's last operation on a stream.
 */
class StreamOrder {
 public:
  /// By the thread that makes the call. @param stream  the program's; null: the default one
  /// @throws Error (DDL_ERR_STATE) when it is being captured into a graph, (DDL_ERR_DEVICE)
  StreamOrder(Device& device, Stream stream);
  /// complete() before.
  ~StreamOrder();
  StreamOrder(const StreamOrder&) = delete;
  StreamOrder& operator=(const StreamOrder&) = delete;

  /// Recorded behind what the stream had been given.
  Event ready() const { return ready_; }
  /// What a stream is given from now on begins when the call is over. Any thread's. @throws Error
  /// (DDL_ERR_DEVICE)
  void hold(Stream stream);
  /// The call is over, done or not: streams go on. Any thread's; harmless when repeated.
  void complete();

 private:
  /// A word that calls use one after the other: each waits for a greater number than the one before.
  struct Word;
  static Word& take_word(const Driver& driver);

  Device& device_;
  Event ready_ = nullptr;
  Word& word_;
  std::uint32_t number_ = 0;
  std::atomic<bool> complete_ = false;
};

}  // namespace ddl::cuda
