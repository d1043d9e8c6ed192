// Where calls on tensors of a GPU stand among the work of its streams.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "ddl.h"

namespace ddl_torch {

using Tensors = std::vector<at::Tensor>;

// The streams of one process group on one device. They are not of torch's pool, whose streams come round
// again: the program might have told one of them to wait for the very call that is to be made on it.
class DeviceStreams {
 public:
  explicit DeviceStreams(c10::Device device);
  // With nothing under way on them that waits for a call: they are the next group's.
  ~DeviceStreams();
  DeviceStreams(const DeviceStreams&) = delete;
  DeviceStreams& operator=(const DeviceStreams&) = delete;

  c10::Device device() const { return device_; }
  // Of the thread that makes the calls: what a call needs beside DDL, such as copies to a layout that it
  // takes. Between calls nothing is on it.
  const c10::Stream& calls() const { return calls_; }
  // Of the thread that looks after messages; copies alone.
  const c10::Stream& messages() const { return messages_; }
  // Waits for the end of every call, in their order. Nothing else is put there.
  const c10::Stream& ends() const { return ends_; }
  // As ends(), of a single message: messages end in any order.
  c10::Stream TakeEnd() const;
  static void GiveEnd(c10::Stream stream);

 private:
  const c10::Device device_;
  const c10::Stream calls_;
  const c10::Stream messages_;
  const c10::Stream ends_;
};

// One call, from its issue to its end. Work that streams were given before its issue comes before it, and
// work that they are given after Hold() comes after it. The host waits for neither.
class DeviceOrder {
 public:
  // kFirstCall: of its group on a device. It takes memory of the device, which may wait for all streams, so
  // that none may wait for it: who issues it must wait for its end, and Hold() comes after that.
  enum class Kind { kCall, kFirstCall, kMessage };

  // On the thread that issues the call, after what its current stream has been given. torch's allocator gives
  // the memory of `tensors` to nobody else before the end, also when the program drops them.
  DeviceOrder(std::shared_ptr<DeviceStreams> streams, const Tensors& tensors, Kind kind);
  // Ends it.
  ~DeviceOrder();
  DeviceOrder(const DeviceOrder&) = delete;
  DeviceOrder& operator=(const DeviceOrder&) = delete;

  // What the current stream of this thread is given from now on begins after the end.
  void Hold() const;
  // The call is over, done or not: streams go on. Any thread's; harmless when repeated.
  void End();
  // Runs `fill` with a stream current that has been told to wait for the end.
  void AfterEnd(const std::function<void()>& fill) const;

  // Makes the call on the streams' calls(), and returns when all that it has put there is done.
  void Make(const std::function<void(void* stream)>& call, std::chrono::duration<double> limit) const;
  // Overwrites the outputs of a call that has failed by NaN, where their type has one: streams that wait for
  // it go on, and must not take them for results. Never throws.
  void Spoil(const Tensors& outputs) const;

  // Whether the work before the issue is done.
  bool InputsReady() const { return ready_.query(); }
  const DeviceStreams& streams() const { return *streams_; }
  bool first() const { return kind_ == Kind::kFirstCall; }

 private:
  const std::shared_ptr<DeviceStreams> streams_;
  const Kind kind_;
  const c10::Stream end_stream_;
  c10::Event ready_;
  c10::Event over_;
  std::mutex mutex_;
  DDL_Latch latch_ = 0;
};

// A tensor over the memory that `tensor` has now, where that is a GPU's: a program may shrink its storage
// after the issue, as FSDP does, when a stream has been told to wait for the call.
at::Tensor AsIssued(const at::Tensor& tensor);
Tensors AsIssued(const Tensors& tensors);

// Waits for a stream, or for what an event was recorded behind. Throws DistBackendError after `limit`.
void Finish(const c10::Stream& stream, std::chrono::duration<double> limit);
void Finish(const c10::Event& event, std::chrono::duration<double> limit);

}  // namespace ddl_torch
