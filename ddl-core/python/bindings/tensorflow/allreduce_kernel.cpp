// AllReduce and AllReduceN: one and several tensors, the same kernel.
#include <string>
#include <vector>

#include "collective_kernel.hpp"
#include "mpi_check.hpp"
#include "status.hpp"
#include "tensorflow/core/framework/op_kernel.h"

namespace ddl_tensorflow {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

absl::Status ParseOp(const std::string& text, DDL_Op* op) {
  if (text == "sum") {
    *op = DDL_OP_SUM;
  } else if (text == "avg") {
    *op = DDL_OP_AVG;
  } else if (text == "min") {
    *op = DDL_OP_MIN;
  } else if (text == "max") {
    *op = DDL_OP_MAX;
  } else if (text == "product") {
    *op = DDL_OP_PRODUCT;
  } else {
    return absl::InvalidArgumentError("unknown reduction '" + text + "'; one of sum, avg, min, max, product");
  }
  return absl::OkStatus();
}

class AllReduceKernel final : public CollectiveKernel {
 public:
  explicit AllReduceKernel(OpKernelConstruction* construction)
      : CollectiveKernel(construction), call_name_(CallName(construction)) {
    std::string op;
    OP_REQUIRES_OK(construction, construction->GetAttr("op", &op));
    OP_REQUIRES_OK(construction, ParseOp(op, &op_));
    OP_REQUIRES_OK(construction, construction->GetAttr("mpi", &mpi_));
    OP_REQUIRES_OK(construction, construction->GetAttr("check", &check_));
    OP_REQUIRES(construction, check_ >= 0,
                absl::InvalidArgumentError("check must be 0 (off) or a positive tolerance"));
    OP_REQUIRES_OK(construction, ToDdlType(construction->input_type(0), &type_));
  }

 protected:
  bool IsLocal() const override { return IsOnlyRank(); }

  absl::Status Call(OpKernelContext* context, Started* started) override {
    if (IsLocal()) {
      for (int i = 0; i < context->num_inputs(); ++i) context->set_output(i, context->input(i));
      return absl::OkStatus();
    }
    TensorGroup group;
    if (absl::Status status = InputsToOutputs(context, &group); !status.ok()) return status;
    // MPI's own all-reduce is of the host's memory.
    if (mpi_ || check_ > 0) return group.stream == nullptr ? ReduceHere(group) : ReduceStaged(group);
    return CallOn(group, DDL_ALLREDUCE, type_, op_, 0, call_name_, started);
  }

 private:
  absl::Status ReduceHere(const TensorGroup& group) const {
    if (mpi_) return ReduceByMpi(group);
    MpiCheck check(group, type_);
    Started none;
    absl::Status status = CallOn(group, DDL_ALLREDUCE, type_, op_, 0, call_name_, &none);
    return status.ok() ? check.Compare(group, op_, check_, call_name_) : status;
  }

  // With the tensors of a GPU copied to the host and back: slow, and both are for looking after DDL alone.
  absl::Status ReduceStaged(const TensorGroup& group) const {
    const size_t width = ddl_type_size(type_);
    std::vector<std::vector<char>> memory;
    TensorGroup staged;
    staged.counts = group.counts;
    for (size_t i = 0; i < group.buffers.size(); ++i) {
      memory.emplace_back(group.counts[i] * width);
      staged.buffers.push_back(memory.back().data());
      if (absl::Status status =
              CopyToHost(group.stream, staged.buffers[i], group.buffers[i], memory.back().size());
          !status.ok()) {
        return status;
      }
    }
    if (absl::Status status = ReduceHere(staged); !status.ok()) return status;
    for (size_t i = 0; i < group.buffers.size(); ++i) {
      if (absl::Status status =
              CopyFromHost(group.stream, group.buffers[i], staged.buffers[i], memory[i].size());
          !status.ok()) {
        return status;
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReduceByMpi(const TensorGroup& group) const {
    for (size_t i = 0; i < group.buffers.size(); ++i) {
      if (absl::Status status = ToStatus(ddl_allreduce_plain(group.buffers[i], group.counts[i], type_, op_));
          !status.ok()) {
        return status;
      }
    }
    return absl::OkStatus();
  }

  std::string call_name_;
  DDL_Op op_ = DDL_OP_SUM;
  DDL_Type type_ = DDL_TYPE_FLOAT;
  bool mpi_ = false;
  float check_ = 0;
};

REGISTER_KERNEL_BUILDER(Name("AllReduce").Device(tensorflow::DEVICE_CPU), AllReduceKernel);
REGISTER_KERNEL_BUILDER(Name("AllReduceN").Device(tensorflow::DEVICE_CPU), AllReduceKernel);
REGISTER_KERNEL_BUILDER(Name("AllReduce").Device(tensorflow::DEVICE_GPU), AllReduceKernel);
REGISTER_KERNEL_BUILDER(Name("AllReduceN").Device(tensorflow::DEVICE_GPU), AllReduceKernel);

}  // namespace
}  // namespace ddl_tensorflow
