#include "collective/reduction.hpp"

#include <algorithm>
#include <cstring>

#include "collective/mpi_operations.hpp"
#include "collective/stopwatch.hpp"

namespace ddl {
namespace {

/// The steps of smaller chunks are not timed: the clock would take as long as they do.
constexpr std::size_t kTimedBytes = std::size_t{32} << 10;

}  // namespace

void ReductionChunk::start(const ReductionCall& call, const ChunkSpec& spec, std::uint64_t number,
                           std::uint64_t reusable) {
  call_ = &call;
  spec_ = spec;
  width_ = size_of(call.type);
  timed_ = elements() * width_ >= kTimedBytes;
  number_ = number;
  reusable_ = reusable;
  stage_ = Stage::kPost;
  tier_ = round_ = 0;
  pending_ = 0;
  posted_by_ = 0;
  from_.clear();
  blocks_in_.reset();
  blocks_out_.reset();
  if (call.goal == Goal::kScatter) blocks_in_ = blocks_of(call.input);
  if (call.goal == Goal::kGather) blocks_out_ = blocks_of(call.output);
}

BufferList ReductionChunk::blocks_of(const BufferList& buffer) const {
  const Blocks& blocks = call_->blocks;
  std::vector<void*> starts;
  for (const int rank : *blocks.order) {
    const std::size_t at = static_cast<std::size_t>(rank) * blocks.elements + spec_.from.begin;
    starts.push_back(buffer.buffer(0) + at * width_);
  }
  const std::vector<std::size_t> counts(starts.size(), spec_.from.size());
  return BufferList(starts.data(), counts.data(), starts.size(), call_->type);
}

char* ReductionChunk::at(std::size_t owner, std::size_t element) const {
  return context_.segment.stage(member(owner), slot_, call_->chunking.slot_bytes) + element * width_;
}

bool ReductionChunk::posted_by_all() {
  // Alone, the only input is this rank's own.
  return alone() || context_.all(&RankCell::posted, number_ + 1, posted_by_);
}

bool ReductionChunk::owns_part() const {
  return call_->redundant || !spec_.plan->exchange.local[self_index()].empty();
}

bool ReductionChunk::step(bool locally_agreed, bool globally_agreed) {
  bool moved = false;
  while (advance(locally_agreed, globally_agreed)) moved = true;
  return moved;
}

bool ReductionChunk::advance(bool locally_agreed, bool globally_agreed) {
  const ChunkPlan& plan = *spec_.plan;
  switch (stage_) {
    case Stage::kPost:
      // In order, as the counter only grows. The stage is free once everybody has read the chunk that used it
      // before.
      if (context_.cell().posted.load(std::memory_order_relaxed) != number_) return false;
      if (!context_.gathered_by_all(reusable_)) return false;
      post();
      context_.cell().posted.store(number_ + 1, std::memory_order_release);
      stage_ = Stage::kReduce;
      return true;

    case Stage::kReduce:
      if (call_->goal == Goal::kGather) {
        // From here on messages are sent.
        if (!globally_agreed) return false;
        tier_ = plan.up.size();
      } else if (owns_part()) {
        if (!locally_agreed || !posted_by_all()) return false;
        reduce_group();
      }
      stage_ = Stage::kUp;
      return true;

    case Stage::kUp:
      if (tier_ == plan.up.size()) {
        stage_ = Stage::kDown;
        round_ = 0;
        if (encoded()) round_own_parts();
        return true;
      }
      if (round_ == plan.up[tier_].size()) {
        ++tier_;
        round_ = 0;
        return true;
      }
      if (!globally_agreed) return false;
      context_.tier_clocks[tier_].enter();
      if (context_.timeline != nullptr) round_start_ = Timeline::Clock::now();
      start_round(plan.up[tier_][round_], 0);
      stage_ = Stage::kUpWait;
      return true;

    case Stage::kUpWait:
      if (pending_ > 0) return false;
      note_round("up", tier_);
      finish_round(plan.up[tier_][round_]);
      context_.tier_clocks[tier_].leave();
      ++round_;
      stage_ = Stage::kUp;
      return true;

    case Stage::kDown:
      // Here tier_ is one more than the tier whose rounds are next.
      if (call_->goal == Goal::kScatter) tier_ = 0;
      if (tier_ == 0) {
        stage_ = Stage::kPublish;
        return true;
      }
      if (round_ == plan.down[tier_ - 1].size()) {
        --tier_;
        round_ = 0;
        return true;
      }
      context_.tier_clocks[tier_ - 1].enter();
      if (context_.timeline != nullptr) round_start_ = Timeline::Clock::now();
      start_round(plan.down[tier_ - 1][round_], 1);
      stage_ = Stage::kDownWait;
      return true;

    case Stage::kDownWait:
      if (pending_ > 0) return false;
      note_round("down", tier_ - 1);
      finish_round(plan.down[tier_ - 1][round_]);
      context_.tier_clocks[tier_ - 1].leave();
      ++round_;
      stage_ = Stage::kDown;
      return true;

    case Stage::kPublish:
      // Chunks can overtake each other between the hosts, but the counter only grows.
      if (context_.cell().reduced.load(std::memory_order_relaxed) != number_) return false;
      context_.cell().reduced.store(number_ + 1, std::memory_order_release);
      stage_ = Stage::kGather;
      if (call_->goal == Goal::kScatter) {
        call_->output.copy_in({spec_.to, spec_.to + spec_.from.size()}, own_block());
      } else if (!call_->redundant && wants_result()) {
        find_parts();
      }
      return true;

    case Stage::kGather: {
      const std::size_t before = from_.size();
      std::erase_if(from_, [&](std::size_t i) {
        if (context_.segment.cell(member(i)).reduced.load(std::memory_order_acquire) <= number_) return false;
        gather(i);
        return true;
      });
      const bool moved = from_.size() < before;
      if (from_.empty() && context_.cell().gathered.load(std::memory_order_relaxed) == number_) {
        context_.cell().gathered.store(number_ + 1, std::memory_order_release);
        stage_ = Stage::kDone;
        return true;
      }
      return moved;
    }

    case Stage::kDone:
      return false;
  }
  return false;
}

void ReductionChunk::post() {
  const Stopwatch watch(context_.counters.post_s, timed_);
  const TimelineSpan span(context_.timeline, "post", Timeline::kMemory, number_);
  const auto& local = spec_.plan->exchange.local;
  if (call_->goal == Goal::kGather) {
    call_->input.copy_out(spec_.from, own_block());
    return;
  }
  for (std::size_t i = 0; i < local.size(); ++i) {
    // Nobody else reads the interval this rank owns.
    if (i == self_index() && !call_->redundant) continue;
    input().copy_out({input_begin() + local[i].begin, input_begin() + local[i].end},
                     at(self_index(), local[i].begin));
  }
}

void ReductionChunk::reduce_group() {
  const Stopwatch watch(context_.counters.reduce_s, timed_);
  const TimelineSpan span(context_.timeline, "reduce", Timeline::kMemory, number_);
  const auto& local = spec_.plan->exchange.local;
  const bool redundant = call_->redundant;
  const Interval own = redundant ? Interval{0, elements()} : local[self_index()];
  const std::int64_t divisor = spec_.plan->up.empty() ? call_->divisor : 1;
  sources_.resize(local.size());
  input().for_each_piece({input_begin() + own.begin, input_begin() + own.end},
                         [&](char* piece, std::size_t count, std::size_t offset) {
                           for (std::size_t i = 0; i < local.size(); ++i) {
                             sources_[i] = i == self_index() ? piece : at(i, own.begin + offset);
                           }
                           char* const sum = redundant ? piece : at(self_index(), own.begin + offset);
                           call_->kernel(sum, sources_.data(), static_cast<int>(local.size()), count,
                                         divisor);
                         });
}

void ReductionChunk::note_round(const char* direction, std::size_t tier) const {
  if (context_.timeline == nullptr) return;
  context_.timeline->add(direction, Timeline::kFirstTier + static_cast<int>(tier), round_start_,
                         Timeline::Clock::now(), number_);
}

std::size_t ReductionChunk::bytes_of(Interval range) const {
  return encoded() ? wire_bytes(call_->wire, range.size()) : range.size() * width_;
}

void ReductionChunk::start_mpi(int direction) {
  const std::size_t tier = direction == 0 ? tier_ : tier_ - 1;
  const Exchange& exchange = spec_.plan->exchange;
  const auto& segments = exchange.tiers[tier];
  // MPI reads the counts until it is done.
  counts_.assign(segments.size() * 2, {});
  std::size_t scratch = 0;
  for (std::size_t s = 0; s < segments.size(); ++s) {
    const Segment& segment = segments[s];
    const MPI_Comm comm = context_.segment_comms.at(segment.owners);
    std::vector<int>& counts = counts_[2 * s];
    std::vector<int>& starts = counts_[2 * s + 1];
    for (std::size_t i = 0; i < segment.owners.size(); ++i) {
      const Interval part = segment.part(i, exchange.grain);
      counts.push_back(static_cast<int>(part.size()));
      starts.push_back(static_cast<int>(part.begin - segment.range.begin));
    }
    MPI_Request request = MPI_REQUEST_NULL;
    char* const whole = at(self_index(), segment.range.begin);
    if (direction == 0) {
      check_mpi(MPI_Ireduce_scatter(whole, scratch_.data() + scratch * width_, counts.data(),
                                    mpi_datatype(call_->type), mpi_operation(call_->type, call_->op), comm,
                                    &request),
                "MPI_Ireduce_scatter");
      scratch += segment.part(segment.mine, exchange.grain).size();
    } else {
      check_mpi(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, whole, counts.data(), starts.data(),
                                mpi_datatype(call_->type), comm, &request),
                "MPI_Iallgatherv");
    }
    context_.scheduler.watch(request, &pending_);
  }
}

void ReductionChunk::finish_mpi_up() {
  const Exchange& exchange = spec_.plan->exchange;
  const std::int64_t divisor = tier_ + 1 == spec_.plan->up.size() ? call_->divisor : 1;
  std::size_t scratch = 0;
  for (const Segment& segment : exchange.tiers[tier_]) {
    const Interval part = segment.part(segment.mine, exchange.grain);
    const void* source = scratch_.data() + scratch * width_;
    call_->kernel(at(self_index(), part.begin), &source, 1, part.size(), divisor);
    scratch += part.size();
  }
}

void ReductionChunk::start_round(const Round& round, int direction) {
  const std::size_t tier = direction == 0 ? tier_ : tier_ - 1;
  const int tag = CollectiveContext::tag(slot_, tier, direction);
  const std::size_t needed = spec_.plan->scratch * width_;
  if (scratch_.size() < needed) scratch_.resize(needed);
  if (wide_.size() < spec_.plan->wide) wide_.resize(spec_.plan->wide);
  if (spec_.plan->by_mpi[tier] != 0) {
    start_mpi(direction);
    return;
  }
  char* wire = nullptr;
  if (encoded()) {
    std::size_t bytes = 0;
    for (const Transfer& transfer : round.receives) bytes += bytes_of(transfer.range);
    for (const Transfer& transfer : round.sends) bytes += bytes_of(transfer.range);
    if (wire_.size() < bytes) wire_.resize(bytes);
    wire = wire_.data();
  }
  for (const Transfer& receive : round.receives) {
    const std::size_t bytes = bytes_of(receive);
    char* const into = encoded()      ? wire
                       : receive.wide ? reinterpret_cast<char*>(wide_.data() + receive.scratch)
                       : receive.scratch == Transfer::kInPlace ? at(self_index(), receive.range.begin)
                                                               : scratch_.data() + receive.scratch * width_;
    context_.scheduler.receive(into, bytes, receive.peer, tag, &pending_);
    wire += encoded() ? bytes : 0;
  }
  const char* last_encoded = nullptr;
  Interval last_range;
  for (const Transfer& send : round.sends) {
    const std::size_t bytes = bytes_of(send);
    const char* from = send.wide ? reinterpret_cast<const char*>(wide_.data() + send.scratch)
                                 : at(self_index(), send.range.begin);
    if (encoded()) {
      // The same part often goes to several ranks.
      if (last_encoded == nullptr || !(last_range == send.range)) {
        float* const residual = direction == 0 && call_->residual != nullptr
                                    ? call_->residual + spec_.from.begin + send.range.begin
                                    : nullptr;
        encode(call_->wire, reinterpret_cast<const float*>(from), send.range.size(), wire, residual);
        last_encoded = wire;
        last_range = send.range;
        wire += bytes;
      }
      from = last_encoded;
    }
    context_.scheduler.send(tier, from, bytes, send.peer, tag, &pending_);
  }
}

void ReductionChunk::finish_round(const Round& round) {
  if (stage_ == Stage::kUpWait && spec_.plan->by_mpi[tier_] != 0) finish_mpi_up();
  if (round.receives.empty() && round.reductions.empty()) return;
  const Stopwatch watch(context_.counters.reduce_s, timed_);
  const TimelineSpan span(context_.timeline, "reduce", Timeline::kMemory, number_);
  const auto place = [&](Interval range, std::size_t scratch) {
    return scratch == Transfer::kInPlace ? at(self_index(), range.begin) : scratch_.data() + scratch * width_;
  };
  if (encoded()) {
    const char* wire = wire_.data();
    for (const Transfer& receive : round.receives) {
      decode(call_->wire, wire, receive.range.size(),
             reinterpret_cast<float*>(place(receive.range, receive.scratch)));
      wire += bytes_of(receive.range);
    }
  }
  for (const Reduction& reduction : round.reductions) {
    const bool last = reduction.last && tier_ + 1 == spec_.plan->up.size();
    const std::int64_t divisor = last ? call_->divisor : 1;
    const auto wide = [&](std::size_t at) { return wide_.data() + at; };
    sources_.clear();
    switch (reduction.form) {
      case Reduction::Form::kSame:
        for (const std::size_t operand : reduction.operands) {
          sources_.push_back(place(reduction.range, operand));
        }
        call_->kernel(place(reduction.range, reduction.into), sources_.data(),
                      static_cast<int>(sources_.size()), reduction.range.size(), divisor);
        break;
      case Reduction::Form::kWiden:
        wide_kernels(call_->type)
            .widen(wide(reduction.into), place(reduction.range, reduction.operands[0]),
                   reduction.range.size());
        break;
      case Reduction::Form::kWide:
        for (const std::size_t operand : reduction.operands) sources_.push_back(wide(operand));
        reduce_kernel(DDL_TYPE_FLOAT, call_->op)(wide(reduction.into), sources_.data(),
                                                 static_cast<int>(sources_.size()), reduction.range.size(),
                                                 1);
        break;
      case Reduction::Form::kNarrow:
        wide_kernels(call_->type)
            .narrow(place(reduction.range, reduction.into), wide(reduction.operands[0]),
                    reduction.range.size(), divisor);
        break;
    }
  }
}

void ReductionChunk::round_own_parts() {
  // The others get the finished parts in the wire format, so this rank has to use the same values.
  if (spec_.plan->exchange.tiers.empty()) return;
  const Exchange& exchange = spec_.plan->exchange;
  for (const Segment& segment : exchange.tiers.back()) {
    const Interval part = segment.part(segment.mine, exchange.grain);
    if (part.empty()) continue;
    const std::size_t bytes = bytes_of(part);
    if (wire_.size() < bytes) wire_.resize(bytes);
    auto* const values = reinterpret_cast<float*>(at(self_index(), part.begin));
    float* const residual =
        call_->residual != nullptr ? call_->residual + spec_.from.begin + part.begin : nullptr;
    encode(call_->wire, values, part.size(), wire_.data(), residual);
    decode(call_->wire, wire_.data(), part.size(), values);
  }
}

void ReductionChunk::find_parts() {
  const auto& local = spec_.plan->exchange.local;
  for (std::size_t i = 0; i < local.size(); ++i) {
    // This rank's own is there.
    if (i == self_index()) {
      gather(i);
    } else if (!local[i].empty()) {
      from_.push_back(i);
    }
  }
}

void ReductionChunk::gather(std::size_t owner) {
  const Stopwatch watch(context_.counters.gather_s, timed_);
  const TimelineSpan span(context_.timeline, "gather", Timeline::kMemory, number_);
  const Interval part = spec_.plan->exchange.local[owner];
  const BufferList& output = blocks_out_ ? *blocks_out_ : call_->output;
  const std::size_t to = blocks_out_ ? 0 : spec_.to;
  output.copy_in({to + part.begin, to + part.end}, at(owner, part.begin));
}

TieredReduction::TieredReduction(CollectiveContext& context) : context_(context) {
  for (std::size_t slot = 0; slot < kMaxSlots; ++slot) slots_.emplace_back(context, slot);
}

void TieredReduction::start(const ReductionCall& call) {
  call_ = &call;
  chunks_ = call.chunking.chunks;
  started_ = finished_ = 0;
  reusable_ = context_.divide_stages(call.chunking.slots, call.chunking.slot_bytes);
}

bool TieredReduction::step(bool locally_agreed, bool globally_agreed) {
  bool moved = false;
  const std::size_t slots = call_->chunking.slots;
  // Slots follow the running number of the chunk, so that the next call finds them as this one leaves them.
  const auto slot = [&](std::size_t i) -> ReductionChunk& {
    return slots_[(context_.chunks_done + i) % slots];
  };
  while (finished_ < started_ && slot(finished_).done()) {
    ++finished_;
    moved = true;
  }
  while (started_ < chunks_ && started_ < finished_ + slots) {
    const std::uint64_t number = context_.chunks_done + started_;
    const std::uint64_t before = number >= slots ? number - slots + 1 : 0;
    slot(started_).start(*call_, call_->chunks(started_), number, std::max(before, reusable_));
    ++started_;
    moved = true;
  }
  // Oldest first: others wait for it the longest.
  for (std::size_t i = finished_; i < started_; ++i) {
    moved = slot(i).step(locally_agreed, globally_agreed) || moved;
  }
  return moved;
}

}  // namespace ddl
