#include "collective/shared_memory_exchange.hpp"

#include <algorithm>

#include "support/stopwatch.hpp"

namespace ddl {
namespace {

/// Bytes of a rank's part of a chunk, from which on it is worth a look of its own, whether it is there.
constexpr std::size_t kLargePart = 4096;
/// Bytes of a sum that are copied to the caller's output before the next ones are added up: they are still in
/// the first-level cache then.
constexpr std::size_t kCachedSum = std::size_t{16} << 10;

}  // namespace

void SharedMemoryExchange::start(const ReductionWork& work) {
  work_ = &work;
  check_room(work.elements() * work.width, room());
  posting_ = added_up_ = told_ = false;
  summed_by_ = 0;
  copies_.clear();
  posted_by_ = 0;
  from_.clear();
  if (work.call->goal == Goal::kScatter) list_blocks(work.call->input);
  if (work.call->goal == Goal::kGather) list_blocks(work.call->output);
}

void SharedMemoryExchange::list_blocks(const BufferList& buffer) {
  const Blocks& blocks = work_->call->blocks;
  blocks_.begin(work_->call->type, buffer.executor());
  for (const int rank : *blocks.order) {
    const std::size_t first = static_cast<std::size_t>(rank) * blocks.elements + work_->spec.from.begin;
    blocks_.add(buffer.buffer(0) + first * work_->width, work_->spec.from.size());
  }
}

Progress SharedMemoryExchange::post() {
  const bool begins = !posting_;
  if (begins) {
    // The stage is free once everybody has read the chunk that used it before.
    if (!context_.gathered_by_all(work_->reusable)) return Progress::kWaiting;
    copy_input();
    posting_ = true;
  }
  if (!copies_.done() || context_.cell().posted.load(std::memory_order_relaxed) != work_->number) {
    return begins ? Progress::kMoved : Progress::kWaiting;
  }
  context_.publish(&RankCell::posted, work_->number + 1);
  return Progress::kDone;
}

void SharedMemoryExchange::copy_input() {
  const Stopwatch watch(context_.counters.post_s, work_->timed);
  const TimelineSpan span(context_.timeline, "post", Timeline::kMemory, work_->number);
  if (work_->call->goal == Goal::kGather) {
    const BlockPlace block = own_block();
    work_->call->input.copy_out(work_->spec.from, block.at, copies_, block.in);
    return;
  }
  // Nobody else reads the interval this rank adds up, and it can read that where it is.
  Interval left_out = added()[self_index()];
  if (redundant() || !reads_own_input() || left_out.empty()) left_out = {};
  for (const Interval part : {Interval{0, left_out.begin}, Interval{left_out.end, work_->elements()}}) {
    if (part.empty()) continue;
    input().copy_out({input_begin() + part.begin, input_begin() + part.end}, at(self_index(), part.begin),
                     copies_, to_stage());
  }
}

SharedMemoryExchange::BlockPlace SharedMemoryExchange::own_block() const {
  return {at(self_index(), block_begin()), to_stage(), from_stage()};
}

bool SharedMemoryExchange::posted_by_all() {
  // Alone, the only input is this rank's own.
  return alone() || context_.all(&RankCell::posted, work_->number + 1, posted_by_);
}

Progress SharedMemoryExchange::reduce(bool agreed) {
  if (work_->call->goal == Goal::kGather) return Progress::kDone;
  if (adds() && !added_up_) {
    if (!agreed || !posted_by_all()) return Progress::kWaiting;
    if (const Progress progress = reduce_group(); progress != Progress::kDone) return progress;
    added_up_ = true;
  }
  return spreads() ? exchange_sums() : Progress::kDone;
}

Progress SharedMemoryExchange::exchange_sums() {
  if (!told_) {
    // In the order of the call's chunks; other calls do not count.
    const bool first = work_->number == context_.chunks_done;
    if (!first && context_.cell().summed.load(std::memory_order_relaxed) != work_->number)
      return Progress::kWaiting;
    context_.segment.publish_alone(context_.self, &RankCell::summed, work_->number + 1);
    told_ = true;
  }
  const Interval own = local()[self_index()];
  for (; summed_by_ < local().size(); ++summed_by_) {
    if (common_to(added()[summed_by_], own).empty()) continue;
    const RankCell& other = context_.segment.cell(member(summed_by_));
    if (other.summed.load(std::memory_order_acquire) <= work_->number) return Progress::kWaiting;
  }
  return Progress::kDone;
}

Progress SharedMemoryExchange::reduce_group() {
  const Stopwatch watch(context_.counters.reduce_s, work_->timed);
  const TimelineSpan span(context_.timeline, "reduce", Timeline::kMemory, work_->number);
  if (redundant()) {
    add_up({0, work_->elements()}, self_index());
    return Progress::kDone;
  }
  const Interval own = added()[self_index()];
  if (!spreads()) {
    add_up(own, self_index());
    return Progress::kDone;
  }
  for (std::size_t owner = 0; owner < local().size(); ++owner) {
    const Interval part = common_to(own, local()[owner]);
    if (!part.empty()) add_up(part, owner);
  }
  return Progress::kDone;
}

void SharedMemoryExchange::add_up(Interval range, std::size_t owner) {
  const ReductionCall& call = *work_->call;
  const std::int64_t divisor = work_->divisor_of(0);
  const auto members = static_cast<int>(local().size());
  sources_.resize(local().size());
  if (!input().on_host()) {
    for (std::size_t i = 0; i < local().size(); ++i) sources_[i] = at(i, range.begin);
    call.kernel(at(owner, range.begin), sources_.data(), members, range.size(), divisor);
    return;
  }
  const std::size_t step = sums_are_final() ? kCachedSum / work_->width : range.size();
  const auto add_up_piece = [&](char* piece, std::size_t count, std::size_t offset) {
    for (std::size_t done = 0; done < count; done += step) {
      const Interval part{range.begin + offset + done, range.begin + offset + std::min(done + step, count)};
      char* const own = piece + done * work_->width;
      for (std::size_t i = 0; i < local().size(); ++i) {
        sources_[i] = i == self_index() ? own : at(i, part.begin);
      }
      char* const sum = redundant() ? own : at(holder_of(owner), part.begin);
      call.kernel(sum, sources_.data(), members, part.size(), divisor);
      if (sums_are_final()) copy_to_output(part, sum);
    }
  };
  input().for_each_piece({input_begin() + range.begin, input_begin() + range.end}, add_up_piece);
}

Progress SharedMemoryExchange::publish() {
  if (const Progress progress = bring_back(); progress != Progress::kDone) return progress;
  // Chunks can overtake each other between the hosts, but the counter only grows.
  if (context_.cell().reduced.load(std::memory_order_relaxed) != work_->number) return Progress::kWaiting;
  const ReductionCall& call = *work_->call;
  // Where everybody adds up everything, nobody waits for it.
  context_.segment.publish(context_.self, &RankCell::reduced, work_->number + 1, !redundant());
  if (call.goal == Goal::kScatter) {
    const BlockPlace block = own_block();
    call.output.copy_in({work_->spec.to, work_->spec.to + work_->spec.from.size()}, block.at, copies_,
                        block.out);
  } else if (!redundant() && wants_result()) {
    find_parts();
  }
  return Progress::kDone;
}

Progress SharedMemoryExchange::gather() {
  const std::size_t before = from_.size();
  if (looks_at_each()) {
    std::erase_if(from_, [&](std::size_t i) {
      if (context_.segment.cell(member(i)).reduced.load(std::memory_order_acquire) <= work_->number) {
        return false;
      }
      copy_part(i);
      return true;
    });
  } else if (before > 0 &&
             context_.segment.passed_by_all(context_.self, &RankCell::reduced) > work_->number) {
    for (const std::size_t i : from_) copy_part(i);
    from_.clear();
  }
  const Progress progress = from_.size() < before ? Progress::kMoved : Progress::kWaiting;
  if (!from_.empty() || context_.cell().gathered.load(std::memory_order_relaxed) != work_->number ||
      !copies_.done()) {
    return progress;
  }
  context_.publish(&RankCell::gathered, work_->number + 1);
  return Progress::kDone;
}

bool SharedMemoryExchange::looks_at_each() const {
  return !context_.segment.divided() || work_->elements() * work_->width >= local().size() * kLargePart;
}

void SharedMemoryExchange::find_parts() {
  for (std::size_t i = 0; i < local().size(); ++i) {
    // This rank's own is there.
    if (i == self_index()) {
      if (!sums_are_final()) copy_part(i);
    } else if (!wanted_of(i).empty()) {
      from_.push_back(i);
    }
  }
}

bool SharedMemoryExchange::sums_replace_inputs() const {
  return work_->call->goal == Goal::kAll && work_->spec.plan->up.empty() && !redundant() && !spreads() &&
         input().on_host();
}

bool SharedMemoryExchange::sums_are_final() const {
  return sums_replace_inputs() && wants_result() && !work_->call->kept;
}

Interval SharedMemoryExchange::wanted_of(std::size_t owner) const {
  const Interval part = local()[owner];
  const std::optional<Interval>& kept = work_->call->kept;
  if (!kept) return part;
  const std::size_t begin = input_begin();
  const Interval wanted = common_to({begin + part.begin, begin + part.end}, *kept);
  return {wanted.begin - begin, wanted.end - begin};
}

void SharedMemoryExchange::copy_part(std::size_t owner) {
  const Stopwatch watch(context_.counters.gather_s, work_->timed);
  const TimelineSpan span(context_.timeline, "gather", Timeline::kMemory, work_->number);
  const Interval part = wanted_of(owner);
  if (!part.empty()) copy_to_output(part, at(holder_of(owner), part.begin));
}

void SharedMemoryExchange::copy_to_output(Interval part, const char* from) {
  const bool gathers = work_->call->goal == Goal::kGather;
  const BufferList& output = gathers ? blocks_ : work_->call->output;
  std::size_t to = (gathers ? 0 : work_->spec.to) + part.begin;
  if (const std::optional<Interval>& kept = work_->call->kept) to = input_begin() + part.begin - kept->begin;
  output.copy_in({to, to + part.size()}, from, copies_, from_stage());
}

}  // namespace ddl
