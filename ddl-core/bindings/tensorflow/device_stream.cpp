#include "device_stream.hpp"

#include <condition_variable>
#include <cstdio>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "status.hpp"

namespace ddl_tensorflow {

using stream_executor::DeviceAddressBase;
using stream_executor::Stream;
using tensorflow::Tensor;

namespace {

// The calls that were started on streams, and a thread that waits for them.
class StartedCalls {
 public:
  struct Call {
    DDL_Handle handle;
    std::vector<Tensor> tensors;
    std::string name;
  };

  // Never destroyed: at exit the thread may be waiting for other ranks.
  static StartedCalls& Get() {
    static StartedCalls* const calls = new StartedCalls;
    return *calls;
  }

  void Add(Call call) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      queue_.push_back(std::move(call));
    }
    arrived_.notify_one();
  }

  // The error of a call that nobody has been told of yet.
  absl::Status TakeError() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(error_, absl::OkStatus());
  }

 private:
  StartedCalls() {
    std::thread([this] { Loop(); }).detach();
  }

  void Loop() {
    for (;;) {
      Call call;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        arrived_.wait(lock, [this] { return !queue_.empty(); });
        call = std::move(queue_.front());
        queue_.pop_front();
      }
      const absl::Status status = ToStatus(ddl_wait(call.handle));
      if (status.ok()) continue;
      std::fprintf(stderr, "%s failed on a GPU: %s\n", call.name.c_str(),
                   std::string(status.message()).c_str());
      const std::lock_guard<std::mutex> lock(mutex_);
      if (error_.ok()) error_ = status;
    }
  }

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Call> queue_;
  absl::Status error_;
};

DeviceAddressBase Address(const void* memory, size_t bytes) {
  return DeviceAddressBase(const_cast<void*>(memory), bytes);
}

}  // namespace

Stream* StreamOf(tensorflow::OpKernelContext* context) {
  tensorflow::DeviceContext* const device = context->op_device_context();
  return device == nullptr ? nullptr : device->stream();
}

absl::Status CopyWithin(Stream* stream, void* to, const void* from, size_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  DeviceAddressBase target = Address(to, bytes);
  return stream->Memcpy(&target, Address(from, bytes), bytes);
}

absl::Status CopyToHost(Stream* stream, void* to, const void* from, size_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  const absl::Status status = stream->Memcpy(to, Address(from, bytes), bytes);
  return status.ok() ? stream->BlockHostUntilDone() : status;
}

absl::Status CopyFromHost(Stream* stream, void* to, const void* from, size_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  DeviceAddressBase target = Address(to, bytes);
  const absl::Status status = stream->Memcpy(&target, from, bytes);
  return status.ok() ? stream->BlockHostUntilDone() : status;
}

absl::Status StartOnStream(Stream* stream, DDL_Call call, std::vector<Tensor> tensors,
                           const std::string& call_name) {
  if (absl::Status status = StartedCalls::Get().TakeError(); !status.ok()) return status;
  void* const native = stream->platform_specific_handle().stream;
  call.memory = DDL_MEMORY_CUDA;
  call.stream = native;
  DDL_Handle handle = 0;
  if (absl::Status status = ToStatus(ddl_call_start(&call, &handle)); !status.ok()) return status;
  const absl::Status waits = ToStatus(ddl_stream_wait(handle, native));
  if (!waits.ok()) {
    // The stream cannot wait: the results must be there when the next kernel is put on it.
    const absl::Status status = ToStatus(ddl_wait(handle));
    return status.ok() ? waits : status;
  }
  StartedCalls::Get().Add({handle, std::move(tensors), call_name});
  return absl::OkStatus();
}

}  // namespace ddl_tensorflow
