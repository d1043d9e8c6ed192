#pragma once

#include "cuda/stream_latch.hpp"

namespace ddl::cuda {

/**
 * Where a call stands among the work of streams: after what its stream had been given when the call was made,
 * and before what other streams are given once they were told to wait for it. The host waits for neither.
 */
class StreamOrder {
 public:
  /// By the thread that makes the call. @param stream  the program's; null: the default one
  /// @throws Error (DDL_ERR_STATE) when it is being captured into a graph, (DDL_ERR_DEVICE)
  StreamOrder(Device& device, Stream stream);
  ~StreamOrder();
  StreamOrder(const StreamOrder&) = delete;
  StreamOrder& operator=(const StreamOrder&) = delete;

  /// Recorded behind what the stream had been given.
  Event ready() const { return ready_; }
  /// What a stream is given from now on begins when the call is over. Any thread's. @throws Error
  /// (DDL_ERR_DEVICE)
  void hold(Stream stream) { over_.hold(stream); }
  /// The call is over, done or not: streams go on. Any thread's; harmless when repeated.
  void complete() { over_.release(); }

 private:
  Device& device_;
  StreamLatch over_;
  Event ready_ = nullptr;
};

}  // namespace ddl::cuda
