#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "collective/buffer_list.hpp"
#include "collective/chunk_spec.hpp"
#include "collective/collective_context.hpp"
#include "collective/kernels.hpp"
#include "engine/call_validation.hpp"
#include "plan/exchange.hpp"
#include "plan/schedule.hpp"
#include "transport/mpi_transport.hpp"

namespace ddl {

/**
 * A small all-reduce between up to kLeadersHosts hosts: its messages carry the headers of the agreement,
 * which then needs none of its own.
 *
 *   post      copy the input to this rank's stage
 *   reduce    the leader, the first rank of a group, adds up its group
 *   exchange  what the leaders do with each other, see below
 *   deliver   the leader's stage holds the result, which the group copies
 *
 * Leaders exchange in one of these ways:
 *
 *   one-shot             all send all the others header and sum
 *   star                 all send header and sum to the first one, which sends the sum of all back
 *   direct               all send all the others header and part, and then the finished parts
 *   recursive doubling   all swap header and sum so far with another one, in log2 rounds; see schedule_tier()
 *   recursive multi-     the same with three others, in log4 rounds
 *   plying
 *   recursive halving-   pairs swap header and half of what they still reduce, log2 rounds, and then the
 *   doubling             finished parts the other way
 *
 * The first three are for up to kFewHosts hosts, where a leader may have a message for each.
 *
 * A leader that has the result has compared the headers of all, directly or by way of others. The groups'
 * sums are added up as the topology nests, so the bits are those of an exchange tier by tier. Sums of 16-bit
 * types that take several rounds are sent as float, but by halving-doubling, which rounds each time: it gets
 * the same bits only where groups are pairs.
 */
class SmallAllreduce {
 public:
  struct Call {
    const BufferList& buffers;
    DDL_Type type = DDL_TYPE_FLOAT;
    DDL_Op op = DDL_OP_SUM;
    ReduceKernel kernel = nullptr;
    std::int64_t divisor = 1;
    std::size_t divided_in = 0;  ///< level of the sums that are divided: see divided_in() of the plans
    Algorithm algorithm = Algorithm::kOneShot;  ///< kRecursive: with pairwise_distances() only
    Chunking chunking;                          ///< one chunk
  };

  /// @param nesting  of the groups
  SmallAllreduce(CollectiveContext& context, CallValidation& validation, const MpiTransport& transport,
                 const Nesting& nesting);

  /// `call` must outlive it.
  void start(const Call& call);
  /// Goes on without blocking; true when something moved.
  bool step(bool locally_agreed, bool globally_agreed);
  bool done() const { return stage_ == Stage::kDone && requests_.empty(); }
  /// Messages are under way.
  bool messages_pending() const { return !requests_.empty(); }
  /// Gives up what is not complete; the memory of this object must stay.
  void abandon() { requests_.abandon(); }

 private:
  enum class Stage { kPost, kReduce, kExchange, kGather, kDone };

  bool leader() const { return context_.self == 0; }
  bool first() const { return context_.group == 0; }
  bool star() const { return call_->algorithm == Algorithm::kStar; }
  bool direct() const { return call_->algorithm == Algorithm::kDirect; }
  bool halving() const { return call_->algorithm == Algorithm::kRecursive; }
  bool multiplying() const {
    return call_->algorithm == Algorithm::kDoubling || call_->algorithm == Algorithm::kMultiplying;
  }
  Interval all() const { return {0, call_->buffers.count()}; }
  std::size_t grain() const { return std::max<std::size_t>(1, kCacheLine / width_); }
  Interval part(std::size_t group) const;
  /// What this leader still reduces after that many rounds of halving, and what its partner does.
  Interval half(std::size_t rounds) const { return halved(rounds, context_.group); }
  Interval other_half(std::size_t rounds) const {
    return halved(rounds, context_.group ^ distances_[rounds - 1]);
  }
  Interval halved(std::size_t rounds, std::size_t group) const;
  std::size_t bytes() const { return call_->buffers.count() * width_; }
  char* stage(std::size_t rank) const {
    return context_.segment.stage(rank, slot_, call_->chunking.slot_bytes);
  }
  void reduce_group();
  void send_packet(std::size_t group, Interval range);
  void start_exchange();
  void start_pair();
  void finish_pair();
  const TierSchedule& schedule();
  void start_round();
  void finish_round();
  /// Where a sum of all elements lies: what one element's schedule calls a place in its memory.
  char* place(std::size_t at) {
    return at == Transfer::kInPlace ? own_.data() + kTravellingBytes : received_[at];
  }
  float* wide_place(std::size_t at) { return reinterpret_cast<float*>(wide_received_[at]); }
  void finish_exchange();
  void exchange_parts();
  int part_tag() const { return CollectiveContext::tag(slot_, context_.tier_clocks.size() - 1, 1); }
  /// Finished parts, from and to another leader; empty ones are no message.
  void receive_part(std::size_t group, Interval range);
  void send_part(std::size_t group, Interval range);
  std::int64_t divisor_of(std::size_t level) const { return level == call_->divided_in ? call_->divisor : 1; }
  void sum_of_groups(Interval range);
  char* add_up(const Nesting& nesting, Interval range, bool last);
  void deliver(const char* result);

  CollectiveContext& context_;
  CallValidation& validation_;
  const MpiTransport& transport_;
  const Nesting& nesting_;
  const std::vector<std::size_t> distances_;  ///< pairwise_distances(), where there are any
  const Call* call_ = nullptr;
  Copies copies_;  ///< complete at once: the buffers are in host memory
  std::size_t width_ = 0;
  std::uint64_t number_ = 0;
  std::uint64_t reusable_ = 0;
  std::size_t slot_ = 0;
  Stage stage_ = Stage::kDone;
  std::size_t posted_by_ = 0;  ///< ranks of the group, from the first, whose input is there
  bool parts_ = false;         ///< the finished parts are under way
  std::size_t round_ = 0;      ///< from 0, where there are several
  Requests requests_;
  std::vector<char> own_;               ///< eager packet: header and this group's sum, then the result
  std::vector<std::vector<char>> out_;  ///< eager packets by group, of a part of the sum
  std::vector<char> wide_;              ///< eager packet: header and sum as float, and then other such sums
  struct Scheduled {
    Algorithm algorithm;
    bool wide;
    TierSchedule schedule;  ///< of one element, between groups instead of ranks
  };
  std::vector<Scheduled> schedules_;
  const TierSchedule* schedule_ = nullptr;
  std::vector<char*> received_;       ///< of the round, by place
  std::vector<char*> wide_received_;  ///< likewise, of wide elements; else this leader's own
  std::vector<std::size_t> others_;   ///< groups
  std::vector<std::size_t> partners_;
  std::vector<const void*> sources_;
  std::vector<const void*> operands_;
};

}  // namespace ddl
