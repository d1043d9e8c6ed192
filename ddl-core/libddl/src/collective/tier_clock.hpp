#pragma once

#include <chrono>

#include "support/stopwatch.hpp"

namespace ddl {

/// How long a tier was busy: the time during which at least one chunk had messages of it under way.
class TierClock {
 public:
  void enter() {
    if (under_way_++ == 0) since_ = std::chrono::steady_clock::now();
  }
  void leave() {
    if (--under_way_ == 0) {
      busy_s_ += seconds_since(since_);
    }
  }
  /// Of time that no chunk has entered.
  void add(double seconds) { busy_s_ += seconds; }
  void abandon() { under_way_ = 0; }
  double busy_s() const { return busy_s_; }

 private:
  int under_way_ = 0;
  double busy_s_ = 0;
  std::chrono::steady_clock::time_point since_;
};

}  // namespace ddl
