#include "cuda/stream_order.hpp"

#include "support/error.hpp"

namespace ddl::cuda {

StreamOrder::StreamOrder(Device& device, Stream stream) : device_(device), over_(device.driver()) {
  const Driver& driver = device.driver();
  int capturing = kCaptureNone;
  driver.check(driver.stream_capturing(stream, &capturing), "asking for the state of a stream");
  if (capturing != kCaptureNone) {
    throw Error(DDL_ERR_STATE,
                "the stream is being captured into a CUDA graph, but a call of DDL is made by the host, with "
                "other ranks",
                "in ddl_call", "capture what lies before and after it, as two graphs");
  }
  ready_ = device.take_event();
  const Status status = driver.event_record(ready_, stream);
  if (status == kSuccess) return;
  device.give_event(ready_);
  driver.check(status, "recording an event");
}

StreamOrder::~StreamOrder() { device_.give_event(ready_); }

}  // namespace ddl::cuda
