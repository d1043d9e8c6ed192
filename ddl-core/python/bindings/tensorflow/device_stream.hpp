// Calls on the tensors of a GPU, among the work of TensorFlow's stream.
#pragma once

#include <cstddef>
#include <functional>

#include "absl/status/status.h"
#include "ddl.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "xla/stream_executor/stream.h"

namespace ddl_tensorflow {

// The stream that a kernel's device works on; null where that is a processor.
stream_executor::Stream* StreamOf(tensorflow::OpKernelContext* context);

// Copies on the stream, after what it has been given.
absl::Status CopyWithin(stream_executor::Stream* stream, void* to, const void* from, size_t bytes);
// As CopyWithin, and returns when the stream has done all that it was given.
absl::Status CopyToHost(stream_executor::Stream* stream, void* to, const void* from, size_t bytes);
absl::Status CopyFromHost(stream_executor::Stream* stream, void* to, const void* from, size_t bytes);

// Starts a call after what the stream has been given, and returns. No stream waits for it, which might
// deadlock (ddl_stream_wait in ddl.h says how). The tensors must stay until it is complete.
absl::Status StartOnStream(stream_executor::Stream* stream, DDL_Call call, DDL_Handle* handle);

// Runs `done` when a started call is complete, with its status, on a thread that waits for all of them: it
// must not wait for another one.
void WhenComplete(DDL_Handle handle, std::function<void(absl::Status)> done);

}  // namespace ddl_tensorflow
