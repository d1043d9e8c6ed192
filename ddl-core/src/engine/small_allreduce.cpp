#include "engine/small_allreduce.hpp"

#include <algorithm>
#include <cstring>

#include "plan/plan.hpp"
#include "support/types.hpp"

namespace ddl {
namespace {

/// What comes before is for the header, whose bytes end here.
char* contents(std::vector<char>& letter) { return letter.data() + sizeof(CallHeader); }

}  // namespace

SmallAllreduce::SmallAllreduce(Fabric& fabric, Agreement& agreement, const MpiLink& link,
                               const Nesting& nesting)
    : fabric_(fabric),
      agreement_(agreement),
      link_(link),
      nesting_(nesting),
      distances_(pairwise_distances(nesting).value_or(std::vector<std::size_t>())) {}

void SmallAllreduce::start(const Call& call) {
  call_ = &call;
  width_ = size_of(call.type);
  number_ = fabric_.chunks_done;
  const std::size_t slots = call.chunking.slots;
  slot_ = number_ % slots;
  reusable_ = std::max(fabric_.divide_stages(slots, call.chunking.slot_bytes),
                       number_ >= slots ? number_ - slots + 1 : 0);
  stage_ = Stage::kPost;
  parts_ = false;
  round_ = 0;
  if (leader() && own_.empty()) {
    own_.resize(Agreement::kLetterBytes);
    out_.assign(fabric_.groups.size(), own_);
  }
}

bool SmallAllreduce::step(bool locally_agreed, bool) {
  switch (stage_) {
    case Stage::kPost:
      if (!fabric_.gathered_by_all(reusable_)) return false;
      if (!leader()) call_->buffers.copy_out(all(), stage(fabric_.self));
      fabric_.cell().posted.store(number_ + 1, std::memory_order_release);
      stage_ = leader() ? Stage::kReduce : Stage::kGather;
      return true;

    case Stage::kReduce:
      if (!locally_agreed || !fabric_.all(&RankCell::posted, number_ + 1)) return false;
      reduce_group();
      start_exchange();
      stage_ = Stage::kExchange;
      return true;

    case Stage::kExchange:
      if (!requests_.test()) return false;
      finish_exchange();
      return true;

    case Stage::kGather:
      if (fabric_.segment.cell(0).reduced.load(std::memory_order_acquire) <= number_) return false;
      call_->buffers.copy_in(all(), stage(0));
      fabric_.cell().reduced.store(number_ + 1, std::memory_order_release);
      fabric_.cell().gathered.store(number_ + 1, std::memory_order_release);
      stage_ = Stage::kDone;
      return true;

    case Stage::kDone:
      // The first leader's last messages may still be under way.
      return !requests_.empty() && requests_.test();
  }
  return false;
}

Interval SmallAllreduce::part(std::size_t group) const {
  return part_of(all(), fabric_.groups.size(), group, grain());
}

Interval SmallAllreduce::halved(std::size_t rounds, std::size_t group) const {
  Interval range = all();
  for (std::size_t k = 0; k < rounds; ++k) {
    range = part_of(range, 2, (group & distances_[k]) == 0 ? 0 : 1, grain());
  }
  return range;
}

void SmallAllreduce::reduce_group() {
  const std::size_t ranks = fabric_.segment.ranks();
  sources_.resize(ranks);
  call_->buffers.for_each_piece(all(), [&](char* piece, std::size_t count, std::size_t offset) {
    sources_[0] = piece;
    for (std::size_t i = 1; i < ranks; ++i) sources_[i] = stage(i) + offset * width_;
    call_->kernel(contents(own_) + offset * width_, sources_.data(), static_cast<int>(ranks), count, 1);
  });
}

void SmallAllreduce::send_letter(std::size_t group, Interval range) {
  const CallHeader header = agreement_.merged();
  const bool whole = range.size() == call_->buffers.count();
  const std::size_t content = range.size() * width_;
  std::vector<char>& letter = whole ? own_ : out_[group];
  const std::size_t before = travelling_bytes(header.name);
  char* const start = contents(letter) - before;
  std::memcpy(start, &header, before);
  if (!whole) std::memcpy(contents(letter), contents(own_) + range.begin * width_, content);
  link_.send(start, before + content, fabric_.groups[group]->ranks.front(), Agreement::kTag, requests_);
  fabric_.messenger.count(content);
}

void SmallAllreduce::start_exchange() {
  fabric_.tier_clocks.back().enter();
  if (in_pairs()) {
    start_pair();
    return;
  }
  const std::size_t groups = fabric_.groups.size();
  if (star() && !first()) {
    agreement_.receive_letter(0, requests_);
    send_letter(0, all());
    return;
  }
  for (std::size_t i = 1; i < groups; ++i) agreement_.receive_letter((fabric_.group + i) % groups, requests_);
  if (star()) return;
  // Everybody starts with another receiver, lest all send to the same one at once.
  for (std::size_t i = 1; i < groups; ++i) {
    const std::size_t group = (fabric_.group + i) % groups;
    send_letter(group, direct() ? part(group) : all());
  }
}

void SmallAllreduce::finish_exchange() {
  if (in_pairs()) {
    finish_pair();
    return;
  }
  fabric_.tier_clocks.back().leave();
  if (parts_) {
    deliver(contents(own_));
    return;
  }
  if (star() && !first()) {
    agreement_.absorb({0});
    deliver(agreement_.contents_of(0));
    return;
  }
  std::vector<std::size_t> senders;
  for (std::size_t group = 0; group < fabric_.groups.size(); ++group) {
    if (group != fabric_.group) senders.push_back(group);
  }
  agreement_.absorb(senders);
  if (direct()) {
    sum_of_groups(part(fabric_.group));
    exchange_parts();
    return;
  }
  sum_of_groups(all());
  if (star()) {
    for (const std::size_t group : senders) send_letter(group, all());
  }
  deliver(contents(own_));
}

void SmallAllreduce::exchange_parts() {
  parts_ = true;
  fabric_.tier_clocks.back().enter();
  const std::size_t groups = fabric_.groups.size();
  for (std::size_t i = 1; i < groups; ++i) {
    const std::size_t group = (fabric_.group + i) % groups;
    receive_part(group, part(group));
  }
  for (std::size_t i = 1; i < groups; ++i) send_part((fabric_.group + i) % groups, part(fabric_.group));
}

void SmallAllreduce::receive_part(std::size_t group, Interval range) {
  if (range.empty()) return;
  link_.receive(contents(own_) + range.begin * width_, range.size() * width_,
                fabric_.groups[group]->ranks.front(), part_tag(), requests_);
}

void SmallAllreduce::send_part(std::size_t group, Interval range) {
  if (range.empty()) return;
  link_.send(contents(own_) + range.begin * width_, range.size() * width_,
             fabric_.groups[group]->ranks.front(), part_tag(), requests_);
  fabric_.messenger.count(range.size() * width_);
}

void SmallAllreduce::start_pair() {
  const std::size_t rounds = distances_.size();
  if (round_ < rounds) {
    const std::size_t partner = fabric_.group ^ distances_[round_];
    agreement_.receive_letter(partner, requests_);
    send_letter(partner, halving() ? other_half(round_ + 1) : all());
    return;
  }
  // The finished parts go the same way back.
  const std::size_t halvings = 2 * rounds - round_;
  const std::size_t partner = fabric_.group ^ distances_[halvings - 1];
  receive_part(partner, other_half(halvings));
  send_part(partner, half(halvings));
}

void SmallAllreduce::finish_pair() {
  const std::size_t rounds = distances_.size();
  if (round_ < rounds) {
    const std::size_t partner = fabric_.group ^ distances_[round_];
    agreement_.absorb({partner});
    const Interval range = halving() ? half(round_ + 1) : all();
    char* const own = contents(own_) + range.begin * width_;
    const char* const other = agreement_.contents_of(partner);
    const bool lower = fabric_.group < partner;
    const void* const operands[] = {lower ? own : other, lower ? other : own};
    if (!range.empty()) {
      call_->kernel(own, operands, 2, range.size(), round_ + 1 == rounds ? call_->divisor : 1);
    }
  }
  ++round_;
  if (round_ < (halving() ? 2 * rounds : rounds)) {
    start_pair();
    return;
  }
  fabric_.tier_clocks.back().leave();
  deliver(contents(own_));
}

void SmallAllreduce::sum_of_groups(Interval range) {
  std::size_t group = 0;
  if (!range.empty()) add_up(nesting_, group, range, true);
}

char* SmallAllreduce::add_up(const Nesting& nesting, std::size_t& group, Interval range, bool last) {
  char* const own = contents(own_) + range.begin * width_;
  if (nesting.inner.empty()) {
    const std::size_t leaf = group++;
    if (leaf == fabric_.group) return own;
    // In a direct exchange a letter holds the receiver's part only.
    return agreement_.contents_of(leaf) + (direct() ? 0 : range.begin * width_);
  }
  std::vector<const void*> operands;
  for (const Nesting& inner : nesting.inner) operands.push_back(add_up(inner, group, range, false));
  char* const into = last ? own : static_cast<char*>(const_cast<void*>(operands.front()));
  if (operands.size() > 1 || last) {
    call_->kernel(into, operands.data(), static_cast<int>(operands.size()), range.size(),
                  last ? call_->divisor : 1);
  }
  return into;
}

void SmallAllreduce::deliver(const char* result) {
  agreement_.conclude();
  if (fabric_.segment.ranks() > 1) std::memcpy(stage(0), result, bytes());
  fabric_.cell().reduced.store(number_ + 1, std::memory_order_release);
  call_->buffers.copy_in(all(), result);
  fabric_.cell().gathered.store(number_ + 1, std::memory_order_release);
  stage_ = Stage::kDone;
}

}  // namespace ddl
