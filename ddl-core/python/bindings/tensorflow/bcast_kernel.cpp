// Bcast: every rank gets the root's tensor.
#include <string>

#include "collective_kernel.hpp"
#include "tensorflow/core/framework/op_kernel.h"

namespace ddl_tensorflow {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

class BcastKernel final : public CollectiveKernel {
 public:
  explicit BcastKernel(OpKernelConstruction* construction)
      : CollectiveKernel(construction), call_name_(CallName(construction)) {
    OP_REQUIRES_OK(construction, construction->GetAttr("root", &root_));
    OP_REQUIRES_OK(construction, ToDdlType(construction->input_type(0), &type_));
  }

 protected:
  bool IsLocal() const override { return root_ == 0 && IsOnlyRank(); }

  absl::Status Call(OpKernelContext* context, Started* started) override {
    if (IsLocal()) {
      context->set_output(0, context->input(0));
      return absl::OkStatus();
    }
    TensorGroup group;
    if (absl::Status status = InputsToOutputs(context, &group); !status.ok()) return status;
    return CallOn(group, DDL_BROADCAST, type_, DDL_OP_SUM, root_, call_name_, started);
  }

 private:
  std::string call_name_;
  int root_ = 0;
  DDL_Type type_ = DDL_TYPE_FLOAT;
};

REGISTER_KERNEL_BUILDER(Name("Bcast").Device(tensorflow::DEVICE_CPU), BcastKernel);
REGISTER_KERNEL_BUILDER(Name("Bcast").Device(tensorflow::DEVICE_GPU), BcastKernel);

}  // namespace
}  // namespace ddl_tensorflow
