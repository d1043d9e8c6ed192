#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "collective/buffer_list.hpp"
#include "collective/chunk_spec.hpp"
#include "collective/collective_context.hpp"
#include "collective/kernels.hpp"
#include "collective/wire/wire_format.hpp"

namespace ddl {

/// What a chunk is to bring about.
enum class Goal {
  kAll,      ///< everybody (or the root) has the sum of everything
  kScatter,  ///< each rank has the sum of its block
  kGather,   ///< everybody has everybody's block; nothing is added up
};

/// What all chunks of one call have in common. It must outlive the call.
struct ReductionCall {
  const BufferList& input;
  const BufferList& output;  ///< may be the same as the input
  DDL_Type type = DDL_TYPE_FLOAT;
  DDL_Op op = DDL_OP_SUM;
  ReduceKernel kernel = nullptr;
  std::int64_t divisor = 1;  ///< applied in the last reduction, so that an average is rounded once
  /// Every rank of the only group reduces the whole chunk in place: more work, but one wait for the others
  /// instead of two.
  bool redundant = false;
  WireFormat wire = WireFormat::kFull;
  float* residual =
      nullptr;  ///< error feedback of the wire format: an element for each of the input, or null
  Chunking chunking;
  Chunks chunks;
  Goal goal = Goal::kAll;
  Blocks blocks{};  ///< of kScatter and kGather
};

/**
 * One chunk on its way: reduce-scatter up the tiers, all-gather (or gather) down.
 *
 *   post     copy the input to this rank's stage, where its group can read it
 *   reduce   reduce the interval this rank owns in its group, from the members' stages
 *   up       for each outer tier, the rounds that leave the rank with the sum of its part
 *   down     the same tiers backwards: the rounds that give it the other parts
 *   publish  tell the group that the rank's interval is finished
 *   gather   copy everybody's finished interval from their stages to the caller's buffers
 *
 * A reduce-scatter ends with the own interval after `up`, an all-gather begins with it before `down`.
 *
 * Several chunks are under way, each at another stage, so that all tiers and the memory are busy at the same
 * time. Messages only use the stages: the caller may free its buffers as soon as the call has failed,
 * although a message may arrive later.
 */
class ReductionChunk {
 public:
  ReductionChunk(CollectiveContext& context, std::size_t slot) : context_(context), slot_(slot) {}

  void start(const ReductionCall& call, const ChunkSpec& spec, std::uint64_t number, std::uint64_t reusable);
  /// Goes on without blocking; true when something moved.
  bool step(bool locally_agreed, bool globally_agreed);
  bool done() const { return stage_ == Stage::kDone; }

 private:
  enum class Stage { kPost, kReduce, kUp, kUpWait, kDown, kDownWait, kPublish, kGather, kDone };

  bool advance(bool locally_agreed, bool globally_agreed);
  void post();
  void reduce_group();
  void start_round(const Round& round, int direction);
  void finish_round(const Round& round);
  void start_mpi(int direction);
  void finish_mpi_up();
  void round_own_parts();
  void note_round(const char* direction, std::size_t tier) const;
  void find_parts();
  void gather(std::size_t owner);
  std::size_t elements() const {
    return spec_.from.size() * (call_->goal == Goal::kAll ? 1 : call_->blocks.order->size());
  }
  /// Where the chunk's elements lie in the caller's buffers: in these, from this one on.
  const BufferList& input() const { return blocks_in_ ? *blocks_in_ : call_->input; }
  std::size_t input_begin() const { return blocks_in_ ? 0 : spec_.from.begin; }
  /// The chunk's elements of all blocks, in their order, within a buffer of the caller.
  BufferList blocks_of(const BufferList& buffer) const;
  /// This rank's block in its stage.
  char* own_block() const { return at(self_index(), call_->blocks.mine * spec_.from.size()); }
  bool wants_result() const { return spec_.root < 0 || spec_.root == context_.rank; }
  bool alone() const { return spec_.plan->exchange.local.size() == 1; }
  std::size_t member(std::size_t i) const { return alone() ? context_.self : i; }
  std::size_t self_index() const { return alone() ? 0 : context_.self; }
  bool posted_by_all();
  bool owns_part() const;
  char* at(std::size_t owner, std::size_t element) const;
  bool encoded() const { return call_->wire != WireFormat::kFull; }
  std::size_t bytes_of(Interval range) const;
  std::size_t bytes_of(const Transfer& transfer) const {
    return transfer.wide ? transfer.range.size() * sizeof(float) : bytes_of(transfer.range);
  }

  CollectiveContext& context_;
  const std::size_t slot_;
  const ReductionCall* call_ = nullptr;
  ChunkSpec spec_;
  std::size_t width_ = 0;
  bool timed_ = false;
  std::uint64_t number_ = 0;
  std::uint64_t reusable_ = 0;
  Stage stage_ = Stage::kDone;
  std::size_t tier_ = 0;
  std::size_t round_ = 0;
  int pending_ = 0;
  Timeline::Clock::time_point round_start_;
  std::vector<char> scratch_;
  std::vector<float> wide_;
  std::vector<char> wire_;
  std::vector<std::vector<int>> counts_;
  std::vector<const void*> sources_;
  std::optional<BufferList> blocks_in_;   ///< kScatter
  std::optional<BufferList> blocks_out_;  ///< kGather
  std::size_t posted_by_ = 0;             ///< ranks of the group, from the first, whose input is there
  std::vector<std::size_t> from_;         ///< members whose part is still to be read
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
  std::vector<ReductionChunk> slots_;
  const ReductionCall* call_ = nullptr;
  std::size_t chunks_ = 0;
  std::size_t started_ = 0;
  std::size_t finished_ = 0;
  std::uint64_t reusable_ = 0;
};

}  // namespace ddl
