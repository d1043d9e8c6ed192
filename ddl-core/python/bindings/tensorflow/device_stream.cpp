#include "device_stream.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "../start_thread.hpp"
#include "status.hpp"

namespace ddl_tensorflow {

using stream_executor::DeviceAddressBase;
using stream_executor::Stream;

namespace {

// The calls that were started on streams, and a thread that waits for them in the order of their start.
class StartedCalls {
 public:
  struct Call {
    DDL_Handle handle;
    std::function<void(absl::Status)> done;
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

 private:
  StartedCalls() {
    ddl_bindings::StartThread([this] { Loop(); });
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
      call.done(ToStatus(ddl_wait(call.handle)));
    }
  }

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Call> queue_;
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

absl::Status StartOnStream(Stream* stream, DDL_Call call, DDL_Handle* handle) {
  call.memory = DDL_MEMORY_CUDA;
  call.stream = stream->platform_specific_handle().stream;
  return ToStatus(ddl_call_start(&call, handle));
}

void WhenComplete(DDL_Handle handle, std::function<void(absl::Status)> done) {
  try {
    StartedCalls::Get().Add({handle, done});
  } catch (const std::runtime_error&) {
    // The others know, so that it does not take long.
    done(ToStatus(ddl_wait(handle)));
  }
}

}  // namespace ddl_tensorflow
