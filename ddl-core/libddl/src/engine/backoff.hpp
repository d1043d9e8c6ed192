#pragma once

#include <cstdint>

#include "engine/failure_detector.hpp"
#include "transport/shared_segment.hpp"

namespace ddl {

/// What a rank waits for.
enum class WaitsFor {
  kMessages,  ///< messages or copies of devices, which it has to ask for again and again
  kMemory,    ///< only what the ranks of its host publish, which wakes it
};

/// Waits without wasting the processor: spins for a moment when every rank has a core to itself, then yields,
/// then sleeps: until the ranks of the host wake it, or for increasing times. Where the waits of a call have
/// been long it sleeps at once.
class Backoff {
 public:
  Backoff(FailureDetector& detector, SharedSegment& segment, bool oversubscribed)
      : detector_(detector),
        segment_(segment),
        oversubscribed_(oversubscribed),
        untimed_(oversubscribed ? 1 : kUntimedRounds) {}
  ~Backoff() { wake_up(); }
  Backoff(const Backoff&) = delete;
  Backoff& operator=(const Backoff&) = delete;

  /// Nothing could be done: wait a little, at times not at all. The caller then looks again, at everything
  /// that it waits for. @throws Error from the failure detector
  void idle(WaitsFor what);
  /// Something moved.
  void reset();
  double waited_s() const { return waited_s_; }
  /// How long it may sleep while messages are under way, if nothing moves for eight times as long.
  void set_longest_sleep(double seconds) { longest_message_sleep_s_ = seconds; }

 private:
  /// Between ranks that run at once most waits are shorter than a look at the clock.
  static constexpr std::uint32_t kUntimedRounds = 16;

  /// Whether a wait of this call usually is a long one.
  bool patient() const;
  /// Rounds without a look at the clock.
  std::uint32_t untimed() const { return patient() ? 1 : untimed_; }
  double message_sleep_s() const;
  void sleep(WaitsFor what);
  void wake_up() {
    if (falling_asleep_) segment_.end_sleep();
    falling_asleep_ = false;
  }

  FailureDetector& detector_;
  SharedSegment& segment_;
  const bool oversubscribed_;
  const std::uint32_t untimed_;
  Clock::time_point since_;
  std::uint32_t rounds_ = 0;
  std::uint32_t sleeps_ = 0;
  bool falling_asleep_ = false;
  std::uint32_t rings_seen_ = 0;  ///< before the last look, when falling asleep
  double waited_s_ = 0;
  double usual_s_ = 0;  ///< of the waits so far, the newest most
  double longest_message_sleep_s_ = 200e-6;
};

/// Goes on as long as needed; `step` returns whether something moved. @throws Error from the failure detector
template <class Needed, class Step>
void wait_while(Backoff& backoff, Needed needed, Step step) {
  while (needed()) {
    if (step()) {
      backoff.reset();
    } else {
      backoff.idle(WaitsFor::kMessages);
    }
  }
  backoff.reset();
}

}  // namespace ddl
