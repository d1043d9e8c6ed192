#include "collective/allreduce.hpp"

#include <algorithm>

#include "collective/stopwatch.hpp"

namespace ddl {

void AllreduceChunk::start(const AllreduceCall& call, Interval range, std::uint64_t number, bool last) {
  call_ = &call;
  exchange_ = last ? &call.last_chunk : &call.whole_chunk;
  width_ = size_of(call.type);
  range_ = range;
  number_ = number;
  stage_ = Stage::kPost;
  tier_ = 0;
  gathered_.assign(fabric_.segment.ranks(), 0);
  gathered_count_ = 0;
}

bool AllreduceChunk::step(bool locally_agreed, bool globally_agreed) {
  switch (stage_) {
    case Stage::kPost:
      // In order, as the counter only grows. The stage is free once everybody has read the chunk that used it
      // before.
      if (fabric_.cell().posted.load(std::memory_order_relaxed) != number_) return false;
      if (number_ >= kSlots && !fabric_.all(&RankCell::gathered, number_ - kSlots + 1)) return false;
      post();
      fabric_.cell().posted.store(number_ + 1, std::memory_order_release);
      stage_ = Stage::kReduce;
      return true;

    case Stage::kReduce:
      if (!locally_agreed || !fabric_.all(&RankCell::posted, number_ + 1)) return false;
      reduce_group();
      stage_ = exchange_->tiers.empty() ? Stage::kPublish : Stage::kUp;
      return true;

    case Stage::kUp:
      if (!globally_agreed) return false;
      send_up();
      stage_ = Stage::kUpWait;
      return true;

    case Stage::kUpWait:
      if (!requests_.test()) return false;
      reduce_tier();
      if (++tier_ < exchange_->tiers.size()) {
        stage_ = Stage::kUp;
      } else {
        stage_ = Stage::kDown;
      }
      return true;

    case Stage::kDown:
      --tier_;
      send_down();
      stage_ = Stage::kDownWait;
      return true;

    case Stage::kDownWait:
      if (!requests_.test()) return false;
      stage_ = tier_ > 0 ? Stage::kDown : Stage::kPublish;
      return true;

    case Stage::kPublish:
      // Chunks can overtake each other between the hosts, but the counter only grows.
      if (fabric_.cell().reduced.load(std::memory_order_relaxed) != number_) return false;
      fabric_.cell().reduced.store(number_ + 1, std::memory_order_release);
      gather(fabric_.self);
      stage_ = Stage::kGather;
      return true;

    case Stage::kGather: {
      bool moved = false;
      for (std::size_t i = 0; i < gathered_.size(); ++i) {
        if (gathered_[i] != 0) continue;
        if (fabric_.segment.cell(i).reduced.load(std::memory_order_acquire) <= number_) continue;
        gather(i);
        moved = true;
      }
      if (gathered_count_ == gathered_.size() &&
          fabric_.cell().gathered.load(std::memory_order_relaxed) == number_) {
        fabric_.cell().gathered.store(number_ + 1, std::memory_order_release);
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

void AllreduceChunk::post() {
  const Stopwatch watch(fabric_.counters.post_s);
  for (std::size_t i = 0; i < exchange_->local.size(); ++i) {
    // Nobody else reads the interval this rank owns.
    if (i == fabric_.self) continue;
    const Interval part = exchange_->local[i];
    call_->buffers.copy_out({range_.begin + part.begin, range_.begin + part.end},
                            at(fabric_.self, part.begin));
  }
}

std::int64_t AllreduceChunk::divisor_at(std::size_t tier) const {
  return tier == exchange_->tiers.size() ? call_->divisor : 1;
}

void AllreduceChunk::reduce_group() {
  const Stopwatch watch(fabric_.counters.reduce_s);
  const std::size_t ranks = fabric_.segment.ranks();
  const Interval own = exchange_->local[fabric_.self];
  sources_.resize(ranks);
  call_->buffers.for_each_piece({range_.begin + own.begin, range_.begin + own.end},
                                [&](const char* piece, std::size_t count, std::size_t offset) {
                                  for (std::size_t i = 0; i < ranks; ++i) {
                                    sources_[i] = i == fabric_.self ? piece : at(i, own.begin + offset);
                                  }
                                  call_->kernel(at(fabric_.self, own.begin + offset), sources_.data(),
                                                static_cast<int>(ranks), count, divisor_at(0));
                                });
}

void AllreduceChunk::send_up() {
  const std::vector<Segment>& segments = exchange_->tiers[tier_];
  const std::size_t grain = exchange_->grain;
  const std::size_t needed = exchange_->scratch(tier_) * width_;
  if (scratch_.size() < needed) scratch_.resize(needed);
  char* into = scratch_.data();
  const int tag = Fabric::tag(slot_, tier_, 0);
  for (const Segment& segment : segments) {
    const std::size_t bytes = segment.part(segment.mine, grain).size() * width_;
    for (std::size_t i = 0; i < segment.owners.size() && bytes > 0; ++i) {
      if (i == segment.mine) continue;
      fabric_.link->receive(into, bytes, segment.owners[i], tag, requests_);
      into += bytes;
    }
  }
  for (const Segment& segment : segments) {
    // Everybody starts with another receiver, lest all send to the same one at once.
    for (std::size_t k = 1; k < segment.owners.size(); ++k) {
      const std::size_t i = (segment.mine + k) % segment.owners.size();
      const Interval part = segment.part(i, grain);
      if (part.empty()) continue;
      fabric_.send(at(fabric_.self, part.begin), part.size() * width_, segment.owners[i], tag, requests_);
    }
  }
}

void AllreduceChunk::reduce_tier() {
  const Stopwatch watch(fabric_.counters.reduce_s);
  const char* from = scratch_.data();
  for (const Segment& segment : exchange_->tiers[tier_]) {
    const Interval part = segment.part(segment.mine, exchange_->grain);
    if (part.empty()) continue;
    char* const own = at(fabric_.self, part.begin);
    sources_.resize(segment.owners.size());
    for (std::size_t i = 0; i < segment.owners.size(); ++i) {
      if (i == segment.mine) {
        sources_[i] = own;
      } else {
        sources_[i] = from;
        from += part.size() * width_;
      }
    }
    call_->kernel(own, sources_.data(), static_cast<int>(sources_.size()), part.size(),
                  divisor_at(tier_ + 1));
  }
}

void AllreduceChunk::send_down() {
  const std::size_t grain = exchange_->grain;
  const int tag = Fabric::tag(slot_, tier_, 1);
  for (const Segment& segment : exchange_->tiers[tier_]) {
    for (std::size_t i = 0; i < segment.owners.size(); ++i) {
      if (i == segment.mine) continue;
      const Interval part = segment.part(i, grain);
      if (part.empty()) continue;
      fabric_.link->receive(at(fabric_.self, part.begin), part.size() * width_, segment.owners[i], tag,
                            requests_);
    }
  }
  for (const Segment& segment : exchange_->tiers[tier_]) {
    const Interval part = segment.part(segment.mine, grain);
    if (part.empty()) continue;
    for (std::size_t k = 1; k < segment.owners.size(); ++k) {
      const std::size_t i = (segment.mine + k) % segment.owners.size();
      fabric_.send(at(fabric_.self, part.begin), part.size() * width_, segment.owners[i], tag, requests_);
    }
  }
}

void AllreduceChunk::gather(std::size_t owner) {
  const Stopwatch watch(fabric_.counters.gather_s);
  const Interval part = exchange_->local[owner];
  call_->buffers.copy_in({range_.begin + part.begin, range_.begin + part.end}, at(owner, part.begin));
  gathered_[owner] = 1;
  ++gathered_count_;
}

Allreduce::Allreduce(Fabric& fabric) : fabric_(fabric) {
  for (std::size_t slot = 0; slot < kSlots; ++slot) slots_.emplace_back(fabric, slot);
}

void Allreduce::start(const AllreduceCall& call, const Chunking& chunking) {
  call_ = &call;
  chunking_ = chunking;
  started_ = finished_ = 0;
}

bool Allreduce::step(bool locally_agreed, bool globally_agreed) {
  bool moved = false;
  while (finished_ < started_ && slots_[(fabric_.chunks_done + finished_) % kSlots].done()) {
    ++finished_;
    moved = true;
  }
  while (started_ < chunking_.chunks && started_ < finished_ + kSlots) {
    const std::size_t begin = started_ * chunking_.chunk_elements;
    const std::size_t end = std::min(call_->buffers.count(), begin + chunking_.chunk_elements);
    const std::uint64_t number = fabric_.chunks_done + started_;
    slots_[number % kSlots].start(*call_, {begin, end}, number, started_ + 1 == chunking_.chunks);
    ++started_;
    moved = true;
  }
  // Oldest first: others wait for it the longest.
  for (std::size_t i = finished_; i < started_; ++i) {
    moved = slots_[(fabric_.chunks_done + i) % kSlots].step(locally_agreed, globally_agreed) || moved;
  }
  return moved;
}

void Allreduce::abandon() {
  for (AllreduceChunk& slot : slots_) slot.abandon();
}

}  // namespace ddl
