#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "support/timeline.hpp"

namespace ddl {

/**
 * Times of what a device does one after the other, as the host sees it end: each piece of work began when it
 * was given, or when the one before it had ended. No moment is counted twice.
 */
class DeviceSpans {
 public:
  using Clock = Timeline::Clock;

  /// Work has ended now. @param timeline  null: none is written. @param begin  no sooner than that
  /// @returns its seconds
  double end(Timeline* timeline, const char* what, int lane, std::uint64_t number, Clock::time_point begin) {
    const auto now = Clock::now();
    const auto from = std::max(begin, ended_);
    if (timeline != nullptr) timeline->add(what, lane, from, now, number);
    ended_ = now;
    return std::chrono::duration<double>(now - from).count();
  }
  Clock::time_point ended() const { return ended_; }

 private:
  Clock::time_point ended_;
};

}  // namespace ddl
