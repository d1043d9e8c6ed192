#include "collective/broadcast.hpp"

#include <algorithm>

#include "collective/stopwatch.hpp"

namespace ddl {

int Broadcast::relay_of(std::size_t group) const {
  return group == root_group_ ? root_ : fabric_.groups[group]->ranks.front();
}

void Broadcast::start(const BufferList& buffers, DDL_Type type, int root, const Chunking& chunking) {
  buffers_ = &buffers;
  width_ = size_of(type);
  root_ = root;
  chunking_ = chunking;
  started_ = finished_ = 0;
  for (std::size_t i = 0; i < fabric_.groups.size(); ++i) {
    const std::vector<int>& ranks = fabric_.groups[i]->ranks;
    if (std::binary_search(ranks.begin(), ranks.end(), root)) root_group_ = i;
  }
  const std::vector<int>& members = fabric_.members();
  const int relay = relay_of(fabric_.group);
  relay_ = static_cast<std::size_t>(std::find(members.begin(), members.end(), relay) - members.begin());
  node_ = binomial_node(static_cast<int>(fabric_.groups.size()), static_cast<int>(root_group_),
                        static_cast<int>(fabric_.group));
}

bool Broadcast::step_chunk(Chunk& chunk, bool locally_agreed, bool globally_agreed) {
  const std::size_t index = chunk.number % kSlots;
  const std::size_t bytes = chunk.range.size() * width_;
  char* const stage = fabric_.segment.stage(relay_, index);
  const bool relay = fabric_.self == relay_;
  const bool root = fabric_.rank == root_;
  const int tag = Fabric::tag(index, 0, 0);
  switch (chunk.stage) {
    case Stage::kFree:
      if (fabric_.cell().posted.load(std::memory_order_relaxed) != chunk.number) return false;
      if (chunk.number >= kSlots && !fabric_.all(&RankCell::gathered, chunk.number - kSlots + 1))
        return false;
      if (root) {
        const Stopwatch watch(fabric_.counters.post_s);
        buffers_->copy_out(chunk.range, stage);
      }
      fabric_.cell().posted.store(chunk.number + 1, std::memory_order_release);
      chunk.stage = relay && !root ? Stage::kReceive : relay ? Stage::kForward : Stage::kPublish;
      return true;

    case Stage::kReceive:
      if (!globally_agreed) return false;
      fabric_.link->receive(stage, bytes, relay_of(static_cast<std::size_t>(node_.parent)), tag,
                            chunk.requests);
      chunk.stage = Stage::kReceiveWait;
      return true;

    case Stage::kReceiveWait:
      if (!chunk.requests.test()) return false;
      chunk.stage = Stage::kForward;
      return true;

    case Stage::kForward:
      if (!node_.children.empty() && !globally_agreed) return false;
      for (const int child : node_.children) {
        fabric_.send(stage, bytes, relay_of(static_cast<std::size_t>(child)), tag, chunk.requests);
      }
      chunk.stage = Stage::kPublish;
      return true;

    case Stage::kPublish:
      // Chunks can overtake each other between the hosts, but the counter only grows.
      if (fabric_.cell().reduced.load(std::memory_order_relaxed) != chunk.number) return false;
      fabric_.cell().reduced.store(chunk.number + 1, std::memory_order_release);
      chunk.stage = Stage::kRead;
      return true;

    case Stage::kRead:
      if (!locally_agreed ||
          fabric_.segment.cell(relay_).reduced.load(std::memory_order_acquire) <= chunk.number) {
        return false;
      }
      if (!root) {
        const Stopwatch watch(fabric_.counters.gather_s);
        buffers_->copy_in(chunk.range, stage);
      }
      chunk.stage = Stage::kForwardWait;
      return true;

    case Stage::kForwardWait:
      if (!chunk.requests.test()) return false;
      if (fabric_.cell().gathered.load(std::memory_order_relaxed) != chunk.number) return false;
      fabric_.cell().gathered.store(chunk.number + 1, std::memory_order_release);
      chunk.stage = Stage::kDone;
      return true;

    case Stage::kDone:
      return false;
  }
  return false;
}

bool Broadcast::step(bool locally_agreed, bool globally_agreed) {
  bool moved = false;
  while (finished_ < started_ && slot(finished_).stage == Stage::kDone) {
    ++finished_;
    moved = true;
  }
  while (started_ < chunking_.chunks && started_ < finished_ + kSlots) {
    const std::size_t begin = started_ * chunking_.chunk_elements;
    Chunk& chunk = slot(started_);
    chunk.range = {begin, std::min(buffers_->count(), begin + chunking_.chunk_elements)};
    chunk.number = fabric_.chunks_done + started_;
    chunk.stage = Stage::kFree;
    ++started_;
    moved = true;
  }
  for (std::size_t i = finished_; i < started_; ++i) {
    moved = step_chunk(slot(i), locally_agreed, globally_agreed) || moved;
  }
  return moved;
}

void Broadcast::abandon() {
  for (Chunk& chunk : slots_) chunk.requests.abandon();
}

}  // namespace ddl
