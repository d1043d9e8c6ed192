#include "collective/broadcast.hpp"

#include <algorithm>

#include "support/stopwatch.hpp"

namespace ddl {

void Broadcast::start(const BroadcastCall& call) {
  call_ = &call;
  width_ = size_of(call.type);
  chunks_ = call.chunking.chunks;
  started_ = finished_ = 0;
  reusable_ = context_.divide_stages(call.chunking.slots, call.chunking.slot_bytes);
}

bool Broadcast::step_chunk(Chunk& chunk, std::size_t slot, bool locally_agreed, bool globally_agreed) {
  const ChunkSpec& spec = chunk.spec;
  const std::size_t bytes = spec.from.size() * width_;
  char* const stage = context_.segment.stage(chunk.relay, slot, call_->chunking.slot_bytes);
  const bool relay = context_.self == chunk.relay;
  const bool root = context_.rank == spec.root;
  const int tag = CollectiveContext::tag(slot, 0, 0);
  switch (chunk.stage) {
    case Stage::kFree: {
      const std::uint64_t slots = call_->chunking.slots;
      const std::uint64_t free = std::max(chunk.number >= slots ? chunk.number - slots + 1 : 0, reusable_);
      if (!context_.gathered_by_all(free)) return false;
      if (root) {
        const Stopwatch watch(context_.counters.post_s);
        call_->input.copy_out(spec.from, stage, chunk.copies);
      }
      chunk.stage = Stage::kPost;
      return true;
    }

    case Stage::kPost:
      if (!chunk.copies.done()) return false;
      // In order, as the counter only grows.
      if (context_.cell().posted.load(std::memory_order_relaxed) != chunk.number) return false;
      context_.publish(&RankCell::posted, chunk.number + 1);
      chunk.stage = relay && !root ? Stage::kReceive : relay ? Stage::kForward : Stage::kPublish;
      return true;

    case Stage::kReceive:
      if (!globally_agreed) return false;
      context_.scheduler.receive(stage, bytes, spec.relays->parent, tag, &chunk.pending);
      chunk.stage = Stage::kReceiveWait;
      return true;

    case Stage::kReceiveWait:
      if (chunk.pending > 0) return false;
      chunk.stage = Stage::kForward;
      return true;

    case Stage::kForward:
      if (!spec.relays->children.empty() && !globally_agreed) return false;
      for (const int child : spec.relays->children) {
        context_.scheduler.send(0, stage, bytes, child, tag, &chunk.pending);
      }
      chunk.stage = Stage::kPublish;
      return true;

    case Stage::kPublish:
      // Chunks can overtake each other between the hosts, but the counter only grows.
      if (context_.cell().reduced.load(std::memory_order_relaxed) != chunk.number) return false;
      if (relay) {
        context_.segment.publish_alone(context_.self, &RankCell::reduced, chunk.number + 1);
      } else {
        context_.publish(&RankCell::reduced, chunk.number + 1);
      }
      chunk.stage = Stage::kRead;
      return true;

    case Stage::kRead:
      if (!locally_agreed ||
          context_.segment.cell(chunk.relay).reduced.load(std::memory_order_acquire) <= chunk.number) {
        return false;
      }
      if (!(root && call_->in_place)) {
        const Stopwatch watch(context_.counters.gather_s);
        call_->output.copy_in({spec.to, spec.to + spec.from.size()}, stage, chunk.copies);
      }
      chunk.stage = Stage::kEnd;
      return true;

    case Stage::kEnd:
      if (chunk.pending > 0 || !chunk.copies.done()) return false;
      if (context_.cell().gathered.load(std::memory_order_relaxed) != chunk.number) return false;
      context_.publish(&RankCell::gathered, chunk.number + 1);
      chunk.stage = Stage::kDone;
      return true;

    case Stage::kDone:
      return false;
  }
  return false;
}

bool Broadcast::step(bool locally_agreed, bool globally_agreed) {
  const std::size_t slots = call_->chunking.slots;
  const auto index = [&](std::size_t i) { return (context_.chunks_done + i) % slots; };
  bool moved = false;
  while (finished_ < started_ && slots_[index(finished_)].stage == Stage::kDone) {
    ++finished_;
    moved = true;
  }
  while (started_ < chunks_ && started_ < finished_ + slots) {
    Chunk& chunk = slots_[index(started_)];
    chunk.spec = call_->chunks(started_);
    chunk.number = context_.chunks_done + started_;
    chunk.pending = 0;
    chunk.copies.clear();
    const std::vector<int>& members = context_.members();
    chunk.relay = static_cast<std::size_t>(
        std::find(members.begin(), members.end(), chunk.spec.relays->relay) - members.begin());
    chunk.stage = Stage::kFree;
    ++started_;
    moved = true;
  }
  for (std::size_t i = finished_; i < started_; ++i) {
    while (step_chunk(slots_[index(i)], index(i), locally_agreed, globally_agreed)) moved = true;
  }
  return moved;
}

}  // namespace ddl
