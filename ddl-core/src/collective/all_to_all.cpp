#include "collective/all_to_all.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "support/error.hpp"

namespace ddl {

void AllToAll::start(const char* in, char* out, std::size_t bytes) {
  blocks_.clear();
  for (std::size_t i = 0; i < static_cast<std::size_t>(context_.topology.size()); ++i) {
    blocks_.push_back({in + i * bytes, bytes, out + i * bytes, bytes});
  }
  sizes_known_ = true;
  begin();
  if (bytes == 0) {
    steps_ = 0;
    copied_ = true;
  }
}

void AllToAll::start(std::vector<ExchangedBlocks> blocks) {
  blocks_ = std::move(blocks);
  sizes_known_ = sizes_sent_ = false;
  sizes_pending_ = 0;
  sizes_here_.assign(blocks_.size(), 0);
  sizes_there_.assign(blocks_.size(), 0);
  for (std::size_t i = 0; i < blocks_.size(); ++i) sizes_here_[i] = blocks_[i].in_bytes;
  begin();
}

void AllToAll::begin() {
  steps_ = static_cast<std::size_t>(context_.topology.size()) - 1;
  steps_started_ = steps_done_ = 0;
  copied_ = false;
  // Whole before the first step: the scheduler keeps pointers to its elements.
  pending_.assign(steps_, 0);
}

bool AllToAll::exchange_sizes() {
  if (!sizes_sent_) {
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      if (static_cast<int>(i) == context_.rank) continue;
      const int peer = static_cast<int>(i);
      context_.scheduler.receive(&sizes_there_[i], sizeof sizes_there_[i], peer,
                                 CollectiveContext::tag(0, 0, 0), &sizes_pending_);
      context_.scheduler.send(0, &sizes_here_[i], sizeof sizes_here_[i], peer,
                              CollectiveContext::tag(0, 0, 0), &sizes_pending_);
    }
    sizes_sent_ = true;
    return true;
  }
  if (sizes_pending_ > 0) return false;
  sizes_there_[static_cast<std::size_t>(context_.rank)] =
      sizes_here_[static_cast<std::size_t>(context_.rank)];
  check_sizes();
  sizes_known_ = true;
  return true;
}

void AllToAll::check_sizes() const {
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    if (sizes_there_[i] == blocks_[i].out_bytes) continue;
    throw Error(DDL_ERR_MISMATCH,
                context_.topology.describe_rank(static_cast<int>(i)) + " sends " +
                    std::to_string(sizes_there_[i]) + " bytes to " +
                    context_.topology.describe_rank(context_.rank) + ", which expects " +
                    std::to_string(blocks_[i].out_bytes) +
                    "; in exchange; make the sizes of what is sent and of what is received agree");
  }
}

bool AllToAll::step(bool, bool globally_agreed) {
  const auto size = static_cast<std::size_t>(context_.topology.size());
  const auto self = static_cast<std::size_t>(context_.rank);
  if (!sizes_known_) {
    if (!globally_agreed) return false;
    return exchange_sizes();
  }
  bool moved = false;
  if (!copied_) {
    const ExchangedBlocks& own = blocks_[self];
    if (own.in_bytes > 0) std::memcpy(own.out, own.in, own.in_bytes);
    copied_ = moved = true;
  }
  if (!globally_agreed) return moved;
  while (steps_done_ < steps_started_ && pending_[steps_done_] == 0) {
    ++steps_done_;
    moved = true;
  }
  while (steps_started_ < steps_ && steps_started_ < steps_done_ + kUnderWay) {
    const std::size_t k = steps_started_ + 1;
    const std::size_t to = (self + k) % size;
    const std::size_t from = (self + size - k) % size;
    int* const pending = &pending_[steps_started_];
    const int tag = CollectiveContext::tag(k % kMaxSlots, 0, 0);
    const ExchangedBlocks& outgoing = blocks_[to];
    const ExchangedBlocks& incoming = blocks_[from];
    for (std::size_t at = 0; at < incoming.out_bytes; at += kMessageBytes) {
      const std::size_t piece = std::min(kMessageBytes, incoming.out_bytes - at);
      context_.scheduler.receive(incoming.out + at, piece, static_cast<int>(from), tag, pending);
    }
    for (std::size_t at = 0; at < outgoing.in_bytes; at += kMessageBytes) {
      const std::size_t piece = std::min(kMessageBytes, outgoing.in_bytes - at);
      context_.scheduler.send(0, outgoing.in + at, piece, static_cast<int>(to), tag, pending);
    }
    ++steps_started_;
    moved = true;
  }
  return moved;
}

}  // namespace ddl
