#include "engine/small_allreduce.hpp"

#include <algorithm>
#include <cstring>

#include "collective/local_exchange.hpp"
#include "collective/round_reduction.hpp"
#include "plan/plan.hpp"
#include "support/types.hpp"

namespace ddl {
namespace {

/// What comes before is the header.
char* contents(std::vector<char>& packet) { return packet.data() + kTravellingBytes; }

}  // namespace

SmallAllreduce::SmallAllreduce(CollectiveContext& context, CallValidation& validation,
                               const MpiTransport& transport, const Nesting& nesting)
    : context_(context),
      validation_(validation),
      transport_(transport),
      nesting_(nesting),
      distances_(pairwise_distances(nesting).value_or(std::vector<std::size_t>())) {}

void SmallAllreduce::start(const Call& call) {
  call_ = &call;
  width_ = size_of(call.type);
  check_room(bytes(), std::min(kSmallBytes, call.chunking.slot_bytes));
  number_ = context_.chunks_done;
  const std::size_t slots = call.chunking.slots;
  slot_ = number_ % slots;
  reusable_ = std::max(context_.divide_stages(slots, call.chunking.slot_bytes),
                       number_ >= slots ? number_ - slots + 1 : 0);
  stage_ = Stage::kPost;
  posted_by_ = 0;
  parts_ = false;
  round_ = 0;
  if (leader() && own_.empty()) {
    own_.resize(CallValidation::kEagerPacketBytes);
    out_.resize(context_.groups.size());
    for (std::size_t group = 0; group < context_.groups.size(); ++group) {
      if (group != context_.group) others_.push_back(group);
    }
  }
  if (leader() && multiplying()) schedule_ = &schedule();
}

bool SmallAllreduce::step(bool locally_agreed, bool) {
  switch (stage_) {
    case Stage::kPost:
      if (!context_.gathered_by_all(reusable_)) return false;
      if (!leader()) call_->buffers.copy_out(all(), stage(context_.self), copies_);
      context_.publish(&RankCell::posted, number_ + 1);
      stage_ = leader() ? Stage::kReduce : Stage::kGather;
      return true;

    case Stage::kReduce:
      if (!locally_agreed || !context_.all(&RankCell::posted, number_ + 1, posted_by_)) return false;
      reduce_group();
      start_exchange();
      stage_ = Stage::kExchange;
      return true;

    case Stage::kExchange:
      if (!requests_.test()) return false;
      finish_exchange();
      return true;

    case Stage::kGather:
      if (context_.segment.cell(0).reduced.load(std::memory_order_acquire) <= number_) return false;
      call_->buffers.copy_in(all(), stage(0), copies_);
      context_.publish(&RankCell::reduced, number_ + 1);
      context_.publish(&RankCell::gathered, number_ + 1);
      stage_ = Stage::kDone;
      return true;

    case Stage::kDone:
      // The first leader's last messages may still be under way.
      return !requests_.empty() && requests_.test();
  }
  return false;
}

Interval SmallAllreduce::part(std::size_t group) const {
  return part_of(all(), context_.groups.size(), group, grain());
}

Interval SmallAllreduce::halved(std::size_t rounds, std::size_t group) const {
  Interval range = all();
  for (std::size_t k = 0; k < rounds; ++k) {
    range = part_of(range, 2, (group & distances_[k]) == 0 ? 0 : 1, grain());
  }
  return range;
}

void SmallAllreduce::reduce_group() {
  const std::size_t ranks = context_.segment.ranks();
  sources_.resize(ranks);
  call_->buffers.for_each_piece(all(), [&](char* piece, std::size_t count, std::size_t offset) {
    sources_[0] = piece;
    for (std::size_t i = 1; i < ranks; ++i) sources_[i] = stage(i) + offset * width_;
    call_->kernel(contents(own_) + offset * width_, sources_.data(), static_cast<int>(ranks), count,
                  divisor_of(0));
  });
}

void SmallAllreduce::send_packet(std::size_t group, Interval range) {
  const bool whole = range.size() == call_->buffers.count();
  const std::size_t content = range.size() * width_;
  std::vector<char>& packet = whole ? own_ : out_[group];
  if (packet.empty()) packet.resize(own_.size());
  validation_.write_merged(packet.data());
  if (!whole) std::memcpy(contents(packet), contents(own_) + range.begin * width_, content);
  transport_.send(packet.data(), kTravellingBytes + content, context_.groups[group]->ranks.front(),
                  CallValidation::kTag, requests_);
  context_.scheduler.count(content);
}

void SmallAllreduce::start_exchange() {
  context_.tier_clocks.back().enter();
  if (halving()) {
    start_pair();
    return;
  }
  if (multiplying()) {
    start_round();
    return;
  }
  const std::size_t groups = context_.groups.size();
  if (star() && !first()) {
    validation_.receive_packet(0, requests_);
    send_packet(0, all());
    return;
  }
  for (std::size_t i = 1; i < groups; ++i)
    validation_.receive_packet((context_.group + i) % groups, requests_);
  if (star()) return;
  // Everybody starts with another receiver, lest all send to the same one at once.
  for (std::size_t i = 1; i < groups; ++i) {
    const std::size_t group = (context_.group + i) % groups;
    send_packet(group, direct() ? part(group) : all());
  }
}

void SmallAllreduce::finish_exchange() {
  if (halving()) {
    finish_pair();
    return;
  }
  if (multiplying()) {
    finish_round();
    return;
  }
  context_.tier_clocks.back().leave();
  if (parts_) {
    deliver(contents(own_));
    return;
  }
  if (star() && !first()) {
    validation_.merge_packets({others_.data(), 1});
    deliver(validation_.contents_of(0));
    return;
  }
  validation_.merge_packets(others_);
  if (direct()) {
    sum_of_groups(part(context_.group));
    exchange_parts();
    return;
  }
  sum_of_groups(all());
  if (star()) {
    for (const std::size_t group : others_) send_packet(group, all());
  }
  deliver(contents(own_));
}

void SmallAllreduce::exchange_parts() {
  parts_ = true;
  context_.tier_clocks.back().enter();
  const std::size_t groups = context_.groups.size();
  for (std::size_t i = 1; i < groups; ++i) {
    const std::size_t group = (context_.group + i) % groups;
    receive_part(group, part(group));
  }
  for (std::size_t i = 1; i < groups; ++i) send_part((context_.group + i) % groups, part(context_.group));
}

void SmallAllreduce::receive_part(std::size_t group, Interval range) {
  if (range.empty()) return;
  transport_.receive(contents(own_) + range.begin * width_, range.size() * width_,
                     context_.groups[group]->ranks.front(), part_tag(), requests_);
}

void SmallAllreduce::send_part(std::size_t group, Interval range) {
  if (range.empty()) return;
  transport_.send(contents(own_) + range.begin * width_, range.size() * width_,
                  context_.groups[group]->ranks.front(), part_tag(), requests_);
  context_.scheduler.count(range.size() * width_);
}

void SmallAllreduce::start_pair() {
  const std::size_t rounds = distances_.size();
  if (round_ < rounds) {
    const std::size_t partner = context_.group ^ distances_[round_];
    validation_.receive_packet(partner, requests_);
    send_packet(partner, other_half(round_ + 1));
    return;
  }
  // The finished parts go the same way back.
  const std::size_t halvings = 2 * rounds - round_;
  const std::size_t partner = context_.group ^ distances_[halvings - 1];
  receive_part(partner, other_half(halvings));
  send_part(partner, half(halvings));
}

void SmallAllreduce::finish_pair() {
  const std::size_t rounds = distances_.size();
  if (round_ < rounds) {
    const std::size_t partner = context_.group ^ distances_[round_];
    validation_.merge_packets({&partner, 1});
    const Interval range = half(round_ + 1);
    char* const own = contents(own_) + range.begin * width_;
    const char* const other = validation_.contents_of(partner);
    const bool lower = context_.group < partner;
    const void* const operands[] = {lower ? own : other, lower ? other : own};
    if (!range.empty()) {
      call_->kernel(own, operands, 2, range.size(), round_ + 1 == rounds ? divisor_of(nesting_.levels()) : 1);
    }
  }
  ++round_;
  if (round_ < 2 * rounds) {
    start_pair();
    return;
  }
  context_.tier_clocks.back().leave();
  deliver(contents(own_));
}

const TierSchedule& SmallAllreduce::schedule() {
  const bool wide = is_16bit(call_->type);
  for (const Scheduled& made : schedules_) {
    if (made.algorithm == call_->algorithm && made.wide == wide) return made.schedule;
  }
  const std::size_t groups = context_.groups.size();
  Segment all{{0, 1}, {}, places_near_first(groups)[context_.group]};
  for (const std::size_t group : near_first(groups)) all.owners.push_back(static_cast<int>(group));
  schedules_.push_back({call_->algorithm, wide, schedule_tier({all}, call_->algorithm, 1, &nesting_, wide)});
  return schedules_.back().schedule;
}

void SmallAllreduce::start_round() {
  const Round& round = schedule_->up[round_];
  const std::size_t count = call_->buffers.count();
  const std::size_t wide_bytes = kTravellingBytes + schedule_->wide * count * sizeof(float);
  if (wide_.size() < wide_bytes) wide_.resize(wide_bytes);
  received_.resize(schedule_->scratch);
  wide_received_.resize(schedule_->wide);
  for (std::size_t i = 0; i < schedule_->wide; ++i) {
    wide_received_[i] = contents(wide_) + i * count * sizeof(float);
  }
  partners_.clear();
  for (const Transfer& receive : round.receives) {
    const auto group = static_cast<std::size_t>(receive.peer);
    validation_.receive_packet(group, requests_);
    partners_.push_back(group);
    if (receive.scratch != Transfer::kInPlace) {
      (receive.wide ? wide_received_ : received_)[receive.scratch] = validation_.contents_of(group);
    }
  }
  for (const Transfer& send : round.sends) {
    std::vector<char>& packet = send.wide ? wide_ : own_;
    const std::size_t content = count * (send.wide ? sizeof(float) : width_);
    validation_.write_merged(packet.data());
    transport_.send(packet.data(), kTravellingBytes + content,
                    context_.groups[static_cast<std::size_t>(send.peer)]->ranks.front(), CallValidation::kTag,
                    requests_);
    context_.scheduler.count(content);
  }
}

void SmallAllreduce::finish_round() {
  validation_.merge_packets(partners_);
  const ReducedElements elements{call_->type, call_->op, call_->kernel, call_->buffers.count()};
  for (const Reduction& reduction : schedule_->up[round_].reductions) {
    carry_out(
        reduction, elements, reduction.completes > 0 ? divisor_of(reduction.completes) : 1, operands_,
        [this](std::size_t at) { return place(at); }, [this](std::size_t at) { return wide_place(at); });
  }
  ++round_;
  if (round_ < schedule_->up.size()) {
    start_round();
    return;
  }
  context_.tier_clocks.back().leave();
  deliver(contents(own_));
}

void SmallAllreduce::sum_of_groups(Interval range) {
  if (!range.empty()) add_up(nesting_, range, true);
}

char* SmallAllreduce::add_up(const Nesting& nesting, Interval range, bool last) {
  char* const own = contents(own_) + range.begin * width_;
  if (nesting.inner.empty()) {
    const std::size_t leaf = nesting.leaf;
    if (leaf == context_.group) return own;
    // In a direct exchange an eager packet holds the receiver's part only.
    return validation_.contents_of(leaf) + (direct() ? 0 : range.begin * width_);
  }
  // The inner ones leave the stack of operands as they found it.
  const std::size_t bottom = operands_.size();
  for (const Nesting& inner : nesting.inner) operands_.push_back(add_up(inner, range, false));
  const std::size_t count = operands_.size() - bottom;
  char* const into = last ? own : static_cast<char*>(const_cast<void*>(operands_[bottom]));
  if (count > 1 || last) {
    call_->kernel(into, operands_.data() + bottom, static_cast<int>(count), range.size(),
                  divisor_of(nesting.levels()));
  }
  operands_.resize(bottom);
  return into;
}

void SmallAllreduce::deliver(const char* result) {
  validation_.conclude();
  if (context_.segment.ranks() > 1) std::memcpy(stage(0), result, bytes());
  context_.segment.publish_alone(context_.self, &RankCell::reduced, number_ + 1);
  call_->buffers.copy_in(all(), result, copies_);
  context_.publish(&RankCell::gathered, number_ + 1);
  stage_ = Stage::kDone;
}

}  // namespace ddl
