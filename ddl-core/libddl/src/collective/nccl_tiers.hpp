#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

#include "collective/buffer_list.hpp"
#include "collective/collective_context.hpp"
#include "collective/device_spans.hpp"
#include "collective/nccl_exchange.hpp"
#include "cuda/cuda_executor.hpp"
#include "cuda/nccl_ranks.hpp"
#include "ddl.h"
#include "plan/chunking.hpp"

namespace ddl {

/// NCCL in every tier of a topology whose groups of one tier are equally large.
struct NcclTiers {
  struct Tier {
    std::unique_ptr<cuda::NcclRanks> ranks;  ///< one of each child: those who own the same part of a chunk
    std::size_t self = 0;                    ///< this rank's place among them
    int lane = Timeline::kMemory;            ///< of a timeline
  };
  std::vector<Tier> tiers;                 ///< innermost first; those with one member are left out
  std::unique_ptr<DeviceScratch> scratch;  ///< of kTiersScratchBytes

  /// So many chunks are under way: each operation of one has its turn while another's is waited for.
  std::size_t slots() const { return 2 * tiers.size(); }
  /// Ranks in all tiers together.
  std::size_t ranks() const;
};

/**
 * An all-reduce of a GPU's memory by NCCL, tier after tier: reduce-scatter up, all-gather down, each chunk's
 * on a stream for each tier, so that all tiers' links are busy at once (M. Cho et al., "BlueConnect", 2019).
 *
 * All ranks give NCCL the operations in one order, which depends on the number of chunks alone: the k-th
 * operation of chunk i in step i + k, the later operations of a step first. Chunks are cut so that each rank
 * owns equally much; what is left at the end is reduced among all ranks.
 */
class NcclTieredAllreduce {
 public:
  /// @param context   takes the times of the tiers
  /// @param chunking  in chunks of a multiple of the ranks' number of elements, slots() of which fit in the
  /// scratch
  void start(CollectiveContext& context, NcclTiers& tiers, cuda::NcclRanks& all, const BufferList& buffers,
             DDL_Type type, DDL_Op op, const Chunking& chunking);
  bool step(bool locally_agreed, bool globally_agreed);
  bool done() const { return stage_ == Stage::kDone; }

 private:
  enum class Stage { kBegin, kPut, kRest, kEnd, kRun, kDone };
  /// What NCCL has been given last in a tier, and is not on its stream yet.
  struct Given {
    bool any = false;
    std::size_t chunk = 0;
    std::size_t operation = 0;
    DeviceSpans::Clock::time_point since;
  };

  /// An operation on a tier's stream, with its end. Marks of its own: those of the operations are set again
  /// for a later chunk.
  struct Running {
    std::size_t chunk = 0;
    std::size_t operation = 0;
    DeviceSpans::Clock::time_point given;
    cuda::Mark end;
  };
  struct Observed {
    std::deque<Running> running;
    DeviceSpans spans;
  };

  cuda::CudaExecutor& executor() const;
  std::size_t operations() const { return 2 * tiers_->tiers.size(); }
  std::size_t tier_of(std::size_t operation) const;
  std::size_t elements_of(std::size_t chunk) const;
  char* on_device(std::size_t chunk, std::size_t element) const;
  char* piece_of(std::size_t chunk) const;
  cuda::Mark& mark(std::size_t chunk, std::size_t operation);
  /// Whether what a tier was given is on its stream; the end of that is then marked.
  bool settle(std::size_t tier);
  /// Takes the time of what has ended.
  void observe();
  void put(std::size_t chunk, std::size_t operation);
  /// Gives NCCL the next operation in the order, if there is one and it can be.
  bool put_next();

  CollectiveContext* context_ = nullptr;
  NcclTiers* tiers_ = nullptr;
  cuda::NcclRanks* all_ = nullptr;
  const BufferList* buffers_ = nullptr;
  DDL_Type type_ = DDL_TYPE_FLOAT;
  DDL_Op op_ = DDL_OP_SUM;
  std::size_t width_ = 4;
  std::size_t whole_ = 0;  ///< elements that go by tiers
  std::size_t chunk_elements_ = 0;
  std::size_t chunks_ = 0;
  std::size_t step_ = 0;
  std::size_t operation_ = 0;  ///< of the step, the next one and 1
  std::vector<Given> given_;   ///< by tier
  std::vector<cuda::Mark> marks_;
  std::vector<Observed> observed_;                           ///< by tier
  std::vector<DeviceSpans::Clock::time_point> chunk_ended_;  ///< by slot: the latest operation of its chunk
  cuda::Mark end_;
  unsigned looks_ = 0;
  Stage stage_ = Stage::kDone;
};

}  // namespace ddl
