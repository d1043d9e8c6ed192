#include "collective/all_to_all.hpp"

#include <algorithm>
#include <cstring>

namespace ddl {

void AllToAll::start(const char* in, char* out, std::size_t bytes) {
  in_ = in;
  out_ = out;
  bytes_ = bytes;
  steps_ = bytes == 0 ? 0 : static_cast<std::size_t>(fabric_.topology.size()) - 1;
  steps_started_ = steps_done_ = 0;
  copied_ = bytes == 0;
  // Whole before the first step: the messenger keeps pointers to its elements.
  pending_.assign(steps_, 0);
}

bool AllToAll::step(bool, bool globally_agreed) {
  const auto size = static_cast<std::size_t>(fabric_.topology.size());
  const auto self = static_cast<std::size_t>(fabric_.rank);
  bool moved = false;
  if (!copied_) {
    std::memcpy(out_ + self * bytes_, in_ + self * bytes_, bytes_);
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
    const int tag = Fabric::tag(k % kMaxSlots, 0, 0);
    for (std::size_t at = 0; at < bytes_; at += kMessageBytes) {
      const std::size_t piece = std::min(kMessageBytes, bytes_ - at);
      fabric_.messenger.receive(out_ + from * bytes_ + at, piece, static_cast<int>(from), tag, pending);
    }
    for (std::size_t at = 0; at < bytes_; at += kMessageBytes) {
      const std::size_t piece = std::min(kMessageBytes, bytes_ - at);
      fabric_.messenger.send(0, in_ + to * bytes_ + at, piece, static_cast<int>(to), tag, pending);
    }
    ++steps_started_;
    moved = true;
  }
  return moved;
}

}  // namespace ddl
