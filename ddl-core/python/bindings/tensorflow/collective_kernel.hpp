// What all operators have in common that call DDL: they complete from the worker's thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ddl.h"
#include "device_stream.hpp"
#include "tensorflow/core/framework/op_kernel.h"

namespace ddl_tensorflow {

// A call that goes on, where there is one.
using Started = std::optional<DDL_Handle>;

// The base class of the kernels. ComputeAsync returns at once; Call runs later on the worker's thread. The
// kernel is done when its call is, also on a GPU: TensorFlow then puts the next one on its stream.
class CollectiveKernel : public tensorflow::AsyncOpKernel {
 public:
  using tensorflow::AsyncOpKernel::AsyncOpKernel;

  void ComputeAsync(tensorflow::OpKernelContext* context, DoneCallback done) final;

 protected:
  // Makes the DDL calls and sets all outputs. On the worker's thread, one kernel at a time in this process. A
  // last one that it has started on a GPU may go on after its return.
  virtual absl::Status Call(tensorflow::OpKernelContext* context, Started* started) = 0;

  // True when the operator has nothing to wait for; Call then runs on the thread of ComputeAsync.
  virtual bool IsLocal() const = 0;
};

// True in an initialised world of one rank, where every collective is the identity.
bool IsOnlyRank();

// The tensors of one grouped call in the form DDL takes them. Outputs of the kernel, filled with its inputs.
struct TensorGroup {
  std::vector<void*> buffers;
  std::vector<size_t> counts;
  stream_executor::Stream* stream = nullptr;  // what fills them there, else null
};

// Makes output i of `context` hold input i, for all inputs: by taking over the input's memory where nobody
// else needs it (no copy), else by a copy.
absl::Status InputsToOutputs(tensorflow::OpKernelContext* context, TensorGroup* group);

// Makes a call on the group; on a GPU it is started, as by StartOnStream.
absl::Status CallOn(const TensorGroup& group, DDL_Collective collective, DDL_Type type, DDL_Op op, int root,
                    const std::string& call_name, Started* started);

// DDL's element type for a TensorFlow type; an error that lists the types for any other.
absl::Status ToDdlType(tensorflow::DataType type, DDL_Type* result);

// The name under which DDL compares the call across ranks: the attribute `tensor_name`, else the kind of
// operator. Never the name of the graph node, which may differ between ranks that do the same.
std::string CallName(tensorflow::OpKernelConstruction* construction);

}  // namespace ddl_tensorflow
