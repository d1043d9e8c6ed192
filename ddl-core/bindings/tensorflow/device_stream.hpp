// Calls on the tensors of a GPU, among the work of TensorFlow's stream.
#pragma once

#include <string>
#include <vector>

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

// Starts a call after what the stream has been given; what it is given next waits for the end. Returns at
// once. `tensors` are what the call reads and writes, and are kept until then.
//
// When a call fails, the stream goes on. The error is printed, and is what the next call returns.
absl::Status StartOnStream(stream_executor::Stream* stream, DDL_Call call,
                           std::vector<tensorflow::Tensor> tensors, const std::string& call_name);

}  // namespace ddl_tensorflow
