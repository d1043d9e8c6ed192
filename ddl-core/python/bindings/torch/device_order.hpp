// Where calls on tensors of a GPU stand among the work of its streams.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

namespace ddl_torch {

using Tensors = std::vector<at::Tensor>;

// The streams of one process group on one device. They are not of torch's pool, whose streams come round
// again: what a program has put there would hold up a call.
class DeviceStreams {
 public:
  explicit DeviceStreams(c10::Device device);
  // They are the next group's.
  ~DeviceStreams();
  DeviceStreams(const DeviceStreams&) = delete;
  DeviceStreams& operator=(const DeviceStreams&) = delete;

  c10::Device device() const { return device_; }
  // Of the thread that makes the calls: what a call needs beside DDL, such as copies to a layout that it
  // takes. Between calls nothing is on it.
  const c10::Stream& calls() const { return calls_; }
  // Of the thread that looks after messages; copies alone.
  const c10::Stream& messages() const { return messages_; }
  // Nothing is ever put there: an event that is recorded on it has happened.
  const c10::Stream& idle() const { return idle_; }

 private:
  const c10::Device device_;
  const c10::Stream calls_;
  const c10::Stream messages_;
  const c10::Stream idle_;
};

// One call. Work that the current stream was given before its issue comes before it. After it comes what any
// stream is given once the host knows that the call is complete: its results are in memory then.
//
// No stream waits for a call. It would wait for what DDL's threads have yet to do, and those call the driver,
// some of whose calls hold a lock of the device's context while they wait for a stream: copies between a
// device and memory that is not pinned, a kernel's first launch, taking and freeing memory. With such a call
// on another thread, stream and DDL would wait for each other for ever.
class DeviceOrder {
 public:
  // On the thread that issues the call.
  explicit DeviceOrder(std::shared_ptr<DeviceStreams> streams);
  DeviceOrder(const DeviceOrder&) = delete;
  DeviceOrder& operator=(const DeviceOrder&) = delete;

  // Makes the call on the streams' calls(), and returns when all that it has put there is done.
  void Make(const std::function<void(void* stream)>& call, std::chrono::duration<double> limit) const;

  // Whether the work before the issue is done.
  bool InputsReady() const { return ready_.query(); }
  const DeviceStreams& streams() const { return *streams_; }

 private:
  const std::shared_ptr<DeviceStreams> streams_;
  c10::Event ready_;
};

// Pinned memory of the host for a copy of a GPU's tensor, contiguous. torch keeps it for the next.
at::Tensor PinnedLike(const at::Tensor& tensor);

// Waits for a stream, or for what an event was recorded behind. Throws DistBackendError after `limit`.
void Finish(const c10::Stream& stream, std::chrono::duration<double> limit);
void Finish(const c10::Event& event, std::chrono::duration<double> limit);
// As Finish, after an error, so that memory can be given to others: where it takes too long, the device is
// what has failed. Never throws.
void Drain(const c10::Stream& stream);

}  // namespace ddl_torch
