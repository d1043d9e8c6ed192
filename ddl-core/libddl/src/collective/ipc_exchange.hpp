#pragma once

#include <vector>

#include "collective/device_spans.hpp"
#include "collective/nccl_exchange.hpp"
#include "collective/shared_memory_exchange.hpp"
#include "cuda/cuda_executor.hpp"
#include "cuda/reduce_kernels.hpp"

namespace ddl {

/// What the chunks of a call work with in a host whose ranks have each other's memory of GPUs open.
struct IpcHost {
  const cuda::ReduceKernels* kernels = nullptr;
  std::vector<char*> stages;  ///< of the ranks of the innermost group, in its order, as this rank sees them
  cuda::DeviceAddress bases = 0;  ///< the same addresses, in memory of the device
  std::size_t stage_bytes = 0;
  DeviceSpans spans;  ///< of the reductions

  /// Bytes of one chunk's place in a stage. They depend on the number of places alone, as what all ranks have
  /// read does.
  std::size_t slot_bytes(std::size_t slots) const { return stage_bytes / slots / 256 * 256; }
};

/**
 * By staging buffers in memory of GPUs that the ranks of a host have opened of each other (CUDA IPC): a
 * kernel on the GPU adds up, in the processor's order, so that the bits are the same as if everything were
 * staged in the host's memory. What is reduced goes to the rank's staging buffer in the host's memory where
 * there are tiers above.
 *
 * Ranks tell each other in shared memory how far they are, once their GPUs have ended what that says: no
 * stream waits for another rank's.
 */
class IpcExchange : public SharedMemoryExchange {
 public:
  explicit IpcExchange(CollectiveContext& context) : SharedMemoryExchange(context) {}

  void start(const ReductionWork& work) override;
  char* staged(std::size_t element) const override;

 protected:
  char* at(std::size_t owner, std::size_t element) const override;
  std::size_t room() const override { return host().slot_bytes(work().call->chunking.slots); }
  CopyDirection to_stage() const override { return CopyDirection::kWithin; }
  CopyDirection from_stage() const override { return CopyDirection::kWithin; }
  BlockPlace own_block() const override;
  /// A GPU adds up at once what its rank owns.
  bool spreads() const override { return false; }
  bool reads_own_input() const override { return true; }
  Progress reduce_group() override;
  Progress bring_back() override;

 private:
  enum class Stage { kReduce, kReducing, kReduced, kReturning, kBack };

  IpcHost& host() const { return *work().call->ipc; }
  cuda::CudaExecutor& executor() const {
    return static_cast<cuda::CudaExecutor&>(work().call->input.executor());
  }
  Interval own() const { return local()[self_index()]; }
  bool tiers_above() const { return !work().spec.plan->up.empty(); }
  /// In bytes, of an element of the chunk in every stage.
  std::size_t offset(std::size_t element) const {
    return work().slot * host().slot_bytes(work().call->chunking.slots) + element * work().width;
  }
  void put_reduction();

  Stage stage_ = Stage::kReduce;
  cuda::Mark mark_;
  DeviceSpans::Clock::time_point given_;  ///< the reduction
};

}  // namespace ddl
