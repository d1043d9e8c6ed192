#pragma once

#include <cstdint>
#include <deque>

#include "collective/collective_context.hpp"
#include "collective/ipc_exchange.hpp"
#include "collective/message_rounds.hpp"
#include "collective/mpi_rounds.hpp"
#include "collective/nccl_exchange.hpp"
#include "collective/reduction_call.hpp"
#include "collective/shared_memory_exchange.hpp"

namespace ddl {

/**
 * One chunk on its way: reduce-scatter up the tiers, all-gather (or gather) down.
 *
 *   post     the input is staged where the group can read it
 *   reduce   the interval that this rank owns in its group is reduced
 *   up       for each outer tier, the rounds that leave the rank with the sum of its part
 *   down     the same tiers backwards: the rounds that give it the other parts
 *   publish  the group knows that the rank's interval is finished
 *   gather   everybody's finished interval goes to the caller's buffers
 *
 * A reduce-scatter ends with the own interval after `up`, an all-gather begins with it before `down`. What
 * happens inside the group is the LocalExchange's, what happens in a tier its TierEngine's.
 *
 * Several chunks are under way, each at another stage, so that all tiers and the memory are busy at the same
 * time. Messages only use the stages: the caller may free its buffers as soon as the call has failed,
 * although a message may arrive later.
 */
class ReductionChunk {
 public:
  ReductionChunk(CollectiveContext& context, std::size_t slot)
      : context_(context),
        shared_(context),
        ipc_(context),
        nccl_(context),
        messages_(context),
        mpi_(context) {
    work_.slot = slot;
  }
  // Its parts know each other.
  ReductionChunk(const ReductionChunk&) = delete;
  ReductionChunk& operator=(const ReductionChunk&) = delete;

  void start(const ReductionCall& call, const ChunkSpec& spec, std::uint64_t number, std::uint64_t reusable);
  /// Goes on without blocking; true when something moved.
  bool step(bool locally_agreed, bool globally_agreed);
  bool done() const { return stage_ == Stage::kDone; }

 private:
  enum class Stage { kPost, kReduce, kUp, kUpWait, kDown, kDownWait, kPublish, kGather, kDone };

  bool advance(bool locally_agreed, bool globally_agreed);
  /// Goes to `next` when a step of the local exchange is done; whether something moved.
  bool moved(Progress progress, Stage next);
  void start_round(std::size_t tier, const Round& round, TierDirection direction);
  void finish_round(std::size_t tier, const Round& round, TierDirection direction);
  TierEngine& engine(std::size_t tier) {
    if (work_.spec.plan->by_mpi[tier] != 0) return mpi_;
    return messages_;
  }

  CollectiveContext& context_;
  ReductionWork work_;
  SharedMemoryExchange shared_;
  IpcExchange ipc_;
  NcclExchange nccl_;
  MessageRounds messages_;
  MpiRounds mpi_;
  Stage stage_ = Stage::kDone;
  std::size_t tier_ = 0;
  std::size_t round_ = 0;
  Timeline::Clock::time_point round_start_;
};

/// All chunks of a call in order, several at a time.
class TieredReduction {
 public:
  explicit TieredReduction(CollectiveContext& context);
  void start(const ReductionCall& call);
  bool step(bool locally_agreed, bool globally_agreed);
  bool done() const { return finished_ == chunks_; }
  std::size_t chunks() const { return chunks_; }

 private:
  CollectiveContext& context_;
  std::deque<ReductionChunk> slots_;
  const ReductionCall* call_ = nullptr;
  std::size_t chunks_ = 0;
  std::size_t started_ = 0;
  std::size_t finished_ = 0;
  std::uint64_t reusable_ = 0;
};

}  // namespace ddl
