#include "collective/reduction.hpp"

#include <algorithm>

namespace ddl {
namespace {

/// The steps of smaller chunks are not timed: the clock would take as long as they do.
constexpr std::size_t kTimedBytes = std::size_t{32} << 10;

}  // namespace

void ReductionChunk::start(const ReductionCall& call, const ChunkSpec& spec, std::uint64_t number,
                           std::uint64_t reusable) {
  work_.call = &call;
  work_.spec = spec;
  work_.width = size_of(call.type);
  work_.timed = work_.elements() * work_.width >= kTimedBytes;
  work_.number = number;
  work_.reusable = reusable;
  work_.local = &shared_;
  if (call.nccl != nullptr) work_.local = &nccl_;
  if (call.ipc != nullptr) work_.local = &ipc_;
  work_.local->start(work_);
  messages_.reset();
  mpi_.reset();
  stage_ = Stage::kPost;
  tier_ = round_ = 0;
}

bool ReductionChunk::step(bool locally_agreed, bool globally_agreed) {
  bool moved = false;
  while (advance(locally_agreed, globally_agreed)) moved = true;
  return moved;
}

bool ReductionChunk::moved(Progress progress, Stage next) {
  if (progress == Progress::kDone) stage_ = next;
  return progress != Progress::kWaiting;
}

bool ReductionChunk::advance(bool locally_agreed, bool globally_agreed) {
  const ChunkPlan& plan = *work_.spec.plan;
  const Goal goal = work_.call->goal;
  switch (stage_) {
    case Stage::kPost:
      return moved(work_.local->post(), Stage::kReduce);

    case Stage::kReduce:
      if (goal == Goal::kGather) {
        // From here on messages are sent.
        if (!globally_agreed) return false;
        tier_ = plan.up.size();
      }
      return moved(work_.local->reduce(locally_agreed), Stage::kUp);

    case Stage::kUp:
      if (tier_ == plan.up.size()) {
        stage_ = Stage::kDown;
        round_ = 0;
        if (!plan.up.empty()) engine(plan.up.size() - 1).turn(work_);
        return true;
      }
      if (round_ == plan.up[tier_].size()) {
        ++tier_;
        round_ = 0;
        return true;
      }
      if (!globally_agreed) return false;
      start_round(tier_, plan.up[tier_][round_], TierDirection::kUp);
      stage_ = Stage::kUpWait;
      return true;

    case Stage::kUpWait:
      if (!engine(tier_).complete()) return false;
      finish_round(tier_, plan.up[tier_][round_], TierDirection::kUp);
      ++round_;
      stage_ = Stage::kUp;
      return true;

    case Stage::kDown:
      // Here tier_ is one more than the tier whose rounds are next.
      if (goal == Goal::kScatter) tier_ = 0;
      if (tier_ == 0) {
        stage_ = Stage::kPublish;
        return true;
      }
      if (round_ == plan.down[tier_ - 1].size()) {
        --tier_;
        round_ = 0;
        return true;
      }
      start_round(tier_ - 1, plan.down[tier_ - 1][round_], TierDirection::kDown);
      stage_ = Stage::kDownWait;
      return true;

    case Stage::kDownWait:
      if (!engine(tier_ - 1).complete()) return false;
      finish_round(tier_ - 1, plan.down[tier_ - 1][round_], TierDirection::kDown);
      ++round_;
      stage_ = Stage::kDown;
      return true;

    case Stage::kPublish:
      return moved(work_.local->publish(), Stage::kGather);

    case Stage::kGather:
      return moved(work_.local->gather(), Stage::kDone);

    case Stage::kDone:
      return false;
  }
  return false;
}

void ReductionChunk::start_round(std::size_t tier, const Round& round, TierDirection direction) {
  context_.tier_clocks[tier].enter();
  if (context_.timeline != nullptr) round_start_ = Timeline::Clock::now();
  engine(tier).start(work_, tier, round, direction);
}

void ReductionChunk::finish_round(std::size_t tier, const Round& round, TierDirection direction) {
  if (context_.timeline != nullptr) {
    context_.timeline->add(direction == TierDirection::kUp ? "up" : "down",
                           Timeline::kFirstTier + static_cast<int>(tier), round_start_,
                           Timeline::Clock::now(), work_.number);
  }
  engine(tier).finish(work_, tier, round, direction);
  context_.tier_clocks[tier].leave();
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
