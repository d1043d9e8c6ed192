#pragma once

#include <vector>

#include "collective/collective_context.hpp"
#include "collective/local_exchange.hpp"
#include "memory/copies.hpp"

namespace ddl {

/**
 * By staging buffers in memory that the ranks of the group share. Buffers in other memory than the host's are
 * copied there and back; the processor adds up.
 *
 * Several chunks are under way at a time, each in a slot of its own, but the group's counters only grow: what
 * a chunk has done is told in the order of the chunks.
 */
class SharedMemoryExchange : public LocalExchange {
 public:
  explicit SharedMemoryExchange(CollectiveContext& context) : context_(context) {}

  void start(const ReductionWork& work) override;
  Progress post() override;
  Progress reduce(bool agreed) override;
  Progress publish() override;
  Progress gather() override;
  char* staged(std::size_t element) const override { return at(self_index(), element); }

 protected:
  // What another kind of stages does otherwise.
  /// Where a member stages an element of the chunk.
  virtual char* at(std::size_t owner, std::size_t element) const {
    return context_.segment.stage(member(owner), work_->slot, work_->call->chunking.slot_bytes) +
           element * work_->width;
  }
  /// Bytes that a member has for the chunk.
  virtual std::size_t room() const { return work_->call->chunking.slot_bytes; }
  virtual CopyDirection to_stage() const { return CopyDirection::kToHost; }
  virtual CopyDirection from_stage() const { return CopyDirection::kFromHost; }
  /// This rank's block of a reduce-scatter when it is finished, or of an all-gather when it is posted.
  struct BlockPlace {
    char* at;
    CopyDirection in;   ///< to it
    CopyDirection out;  ///< from it
  };
  virtual BlockPlace own_block() const;
  /// Whether ranks add up for others, who own the sums in the tiers.
  virtual bool spreads() const { return !work_->spec.plan->exchange.added.empty(); }
  /// Whether what reduces reads this rank's own input where it is.
  virtual bool reads_own_input() const { return input().on_host(); }
  /// Reduces the interval that this rank adds up; called until it is done.
  virtual Progress reduce_group();
  /// The finished interval is where the group reads it; called until it is done.
  virtual Progress bring_back() { return Progress::kDone; }

  const ReductionWork& work() const { return *work_; }
  CollectiveContext& context() const { return context_; }
  /// Where the chunk's elements lie in the caller's buffers: in these, from this one on.
  const BufferList& input() const { return scatters() ? blocks_ : work_->call->input; }
  std::size_t input_begin() const { return scatters() ? 0 : work_->spec.from.begin; }
  const std::vector<Interval>& local() const { return work_->spec.plan->exchange.local; }
  /// What each rank adds up.
  const std::vector<Interval>& added() const {
    return spreads() ? work_->spec.plan->exchange.added : local();
  }
  bool alone() const { return local().size() == 1; }
  std::size_t member(std::size_t i) const { return alone() ? context_.self : i; }
  std::size_t self_index() const { return alone() ? 0 : context_.self; }
  /// In elements of the chunk.
  std::size_t block_begin() const { return work_->call->blocks.mine * work_->spec.from.size(); }

 private:
  void copy_input();
  void find_parts();
  /// What this rank wants of a member's part of the chunk.
  Interval wanted_of(std::size_t owner) const;
  void copy_part(std::size_t owner);
  /// Starts to copy elements of the chunk's result.
  void copy_to_output(Interval part, const char* from);
  /**
   * Whether sums are staged in the place of an input that they were made of: where no tier goes on with them,
   * nor needs them in the owner's stage. The owner has just read these lines. Its own stage's would have to
   * be fetched from whoever read them last, and take as much room in the caches again.
   */
  bool sums_replace_inputs() const;
  /// Whether this rank copies its sums to the output while it adds up.
  bool sums_are_final() const;
  /// The member whose stage has the sums of `owner`.
  std::size_t holder_of(std::size_t owner) const {
    return sums_replace_inputs() ? (owner + 1) % local().size() : owner;
  }
  /// Whether a part is copied as soon as it is there; else when all are.
  bool looks_at_each() const;
  bool posted_by_all();
  bool adds() const { return redundant() || !added()[self_index()].empty(); }
  /// Adds up elements that `owner` owns.
  void add_up(Interval range, std::size_t owner);
  /// Tells the others of the sums that this rank has made for them, and waits for those that it owns.
  Progress exchange_sums();
  /// Every rank reduces the whole chunk, in place.
  bool redundant() const { return work_->call->redundant; }
  bool scatters() const { return work_->call->goal == Goal::kScatter; }
  void list_blocks(const BufferList& buffer);
  bool wants_result() const { return work_->spec.root < 0 || work_->spec.root == context_.rank; }

  CollectiveContext& context_;
  const ReductionWork* work_ = nullptr;
  bool posting_ = false;
  bool added_up_ = false;
  bool told_ = false;
  std::size_t summed_by_ = 0;  ///< ranks of the group, from the first, whose sums for this one are there
  Copies copies_;
  std::vector<const void*> sources_;
  /// The chunk's elements of all blocks, in their order, within the caller's buffer: that of the input of
  /// kScatter, that of the output of kGather.
  BufferList blocks_;
  std::size_t posted_by_ = 0;      ///< ranks of the group, from the first, whose input is there
  std::vector<std::size_t> from_;  ///< members whose part is still to be read
};

}  // namespace ddl
