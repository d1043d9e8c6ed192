// Init: brings DDL up and says who this process is.
#include <unistd.h>

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>

#include "collective_kernel.hpp"
#include "status.hpp"
#include "tensorflow/core/framework/op_kernel.h"

namespace ddl_tensorflow {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// The accelerator that ddlrun gave this rank, among those that the process sees; else that of its local rank.
int OwnGpu(int local_rank) {
  const char* const told = std::getenv("DDL_LOCAL_GPU");
  const std::string_view text = told == nullptr ? "" : told;
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && number >= 0 ? number : local_rank;
}

// A program that loads this library without the Python package ddl, as scripts for PowerAI do, has nobody
// else who finalises DDL. Where that package is loaded, it has done so when this runs.
void FinaliseAtExit() {
  [[maybe_unused]] static const int registered = on_exit(
      [](int status, void* rank_process) {
        int running = 0;
        int busy = 0;
        // A process that was forked from the rank is none.
        if (reinterpret_cast<std::intptr_t>(rank_process) != getpid()) return;
        if (ddl_initialized(&running) != DDL_SUCCESS || running == 0) return;
        // Finalising waits for the other ranks, and they may wait for this one.
        if (status == 0 && ddl_busy(&busy) == DDL_SUCCESS && busy == 0) {
          ddl_finalize();
        } else {
          ddl_abort(("its program ends with exit status " + std::to_string(status)).c_str());
        }
      },
      reinterpret_cast<void*>(static_cast<std::intptr_t>(getpid())));
}

class InitKernel final : public CollectiveKernel {
 public:
  explicit InitKernel(OpKernelConstruction* construction) : CollectiveKernel(construction) {
    std::string mode;
    bool pci = true;  // a property of the number that the user gives and gets; CUDA_DEVICE_ORDER sets it
    OP_REQUIRES_OK(construction, construction->GetAttr("mode", &mode));
    OP_REQUIRES_OK(construction, construction->GetAttr("pci", &pci));
    // Programs for IBM's DDL give all options in place of the mode.
    if (!mode.empty()) options_ = mode.front() == '-' ? mode : "-mode " + mode;
  }

 protected:
  bool IsLocal() const override { return false; }

  absl::Status Call(OpKernelContext* context, Started*) override {
    const Tensor& user_gpuid = context->input(0);
    if (user_gpuid.NumElements() != 1) {
      return absl::InvalidArgumentError("Init: user_gpuid must be a scalar, not of shape " +
                                        user_gpuid.shape().DebugString());
    }
    // Where DDL is initialised already the options must not contradict those of its calls.
    if (absl::Status status = ToStatus(ddl_init(options_.empty() ? nullptr : options_.c_str()));
        !status.ok()) {
      return status;
    }
    FinaliseAtExit();
    int rank = 0, size = 1, local_rank = 0, local_size = 1;
    for (const int result :
         {ddl_rank(&rank), ddl_size(&size), ddl_local_rank(&local_rank), ddl_local_size(&local_size)}) {
      if (absl::Status status = ToStatus(result); !status.ok()) return status;
    }
    const int wanted_gpu = user_gpuid.flat<int>()(0);
    const int outputs[] = {rank, size, local_rank, local_size,
                           wanted_gpu >= 0 ? wanted_gpu : OwnGpu(local_rank)};
    for (int i = 0; i < 5; ++i) {
      Tensor* output = nullptr;
      if (absl::Status status = context->allocate_output(i, tensorflow::TensorShape({}), &output);
          !status.ok()) {
        return status;
      }
      output->scalar<int>()() = outputs[i];
    }
    return absl::OkStatus();
  }

 private:
  std::string options_;
};

REGISTER_KERNEL_BUILDER(Name("Init").Device(tensorflow::DEVICE_CPU), InitKernel);
// Numbers for the host on a GPU, too.
REGISTER_KERNEL_BUILDER(Name("Init")
                            .Device(tensorflow::DEVICE_GPU)
                            .HostMemory("user_gpuid")
                            .HostMemory("rank")
                            .HostMemory("size")
                            .HostMemory("local_rank")
                            .HostMemory("local_size")
                            .HostMemory("local_gpuid"),
                        InitKernel);

}  // namespace
}  // namespace ddl_tensorflow
