#pragma once

#include <cstdint>

#include "engine/failure_detector.hpp"

namespace ddl {

/// Waits without wasting the processor: spins for a moment when every rank has a core to itself, then yields,
/// then sleeps for increasing times.
class Backoff {
 public:
  Backoff(FailureDetector& detector, bool oversubscribed)
      : detector_(detector), oversubscribed_(oversubscribed), untimed_(oversubscribed ? 1 : kUntimedRounds) {}
  /// Nothing could be done: wait a little. @throws Error from the failure detector
  void idle();
  /// Something moved.
  void reset();
  double waited_s() const { return waited_s_; }

 private:
  /// Between ranks that run at once most waits are shorter than a look at the clock.
  static constexpr std::uint32_t kUntimedRounds = 16;

  FailureDetector& detector_;
  const bool oversubscribed_;
  const std::uint32_t untimed_;
  Clock::time_point since_;
  std::uint32_t rounds_ = 0;
  double waited_s_ = 0;
};

/// Goes on as long as needed; `step` returns whether something moved. @throws Error from the failure detector
template <class Needed, class Step>
void wait_while(Backoff& backoff, Needed needed, Step step) {
  while (needed()) {
    if (step()) {
      backoff.reset();
    } else {
      backoff.idle();
    }
  }
  backoff.reset();
}

}  // namespace ddl
