#pragma once

#include <cstdint>
#include <vector>

#include "collective/collective_context.hpp"
#include "collective/device_spans.hpp"
#include "collective/local_exchange.hpp"
#include "cuda/cuda_executor.hpp"
#include "cuda/nccl_ranks.hpp"

namespace ddl {

/// Memory of a GPU, freed at the end.
class DeviceScratch {
 public:
  DeviceScratch(cuda::Device& device, std::size_t bytes);
  ~DeviceScratch();
  DeviceScratch(const DeviceScratch&) = delete;
  DeviceScratch& operator=(const DeviceScratch&) = delete;
  char* at(std::size_t offset) const { return reinterpret_cast<char*>(address_) + offset; }

 private:
  cuda::Device& device_;
  cuda::DeviceAddress address_ = 0;
};

/// What the chunks of a call work with inside a host of several GPUs.
struct NcclHost {
  cuda::NcclRanks* ranks = nullptr;  ///< of the innermost group, in its order; null: this rank is alone in it
  DeviceScratch* scratch = nullptr;  ///< of kDeviceSlots chunks of kDeviceChunkBytes
  std::size_t position = 0;          ///< operations of this call that NCCL was given
  DeviceSpans spans;                 ///< of the reductions and gatherings
};

/**
 * The local exchange of a call on GPUs: NCCL's reduce-scatter leaves each rank with the sum of its interval,
 * which goes to the rank's staging buffer, to be reduced with that of other hosts, and NCCL's all-gather
 * brings it to all.
 *
 * NCCL wants all ranks to give it the same operations in the same order, whatever the tiers above do first.
 * With d chunks under way that order is: the reduce-scatters of the first d, and then in turn the all-gather
 * of the oldest and the reduce-scatter of the next.
 */
class NcclExchange : public LocalExchange {
 public:
  explicit NcclExchange(CollectiveContext& context) : context_(context) {}

  void start(const ReductionWork& work) override;
  Progress post() override;
  Progress reduce(bool agreed) override;
  Progress publish() override;
  Progress gather() override;
  char* staged(std::size_t element) const override;

 private:
  enum class Stage { kReduce, kReducing, kStaging, kStaged, kReturning, kGather, kGathering, kSpread };

  NcclHost& host() const { return *work_->call->nccl; }
  cuda::CudaExecutor& executor() const;
  const std::vector<Interval>& local() const { return work_->spec.plan->exchange.local; }
  std::size_t self() const { return local().size() == 1 ? 0 : context_.self; }
  Interval own() const { return local()[self()]; }
  std::size_t bytes(std::size_t elements) const { return elements * work_->width; }
  char* on_device(std::size_t element) const;
  bool equal_parts() const;
  /// Where the chunk lies if it is in one piece; else null.
  char* piece_of(const BufferList& buffers, std::size_t from) const;
  std::size_t reduce_position() const;
  std::size_t gather_position() const;
  /// An average is divided within the hosts.
  bool divides() const { return work_->call->op == DDL_OP_AVG && work_->divisor_of(0) != 1; }
  void put_reduction();
  void divide();
  void put_gathering();

  CollectiveContext& context_;
  const ReductionWork* work_ = nullptr;
  Stage stage_ = Stage::kReduce;
  cuda::Mark mark_;
  DeviceSpans::Clock::time_point given_;  ///< what the mark stands for
  std::vector<const void*> sources_;
};

}  // namespace ddl
