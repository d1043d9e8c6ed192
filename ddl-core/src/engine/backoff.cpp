#include "engine/backoff.hpp"

#include <sched.h>

#include <algorithm>
#include <ctime>

namespace ddl {
namespace {

double seconds_since(Clock::time_point from) {
  return std::chrono::duration<double>(Clock::now() - from).count();
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#elif defined(__powerpc64__)
  asm volatile("or 27,27,27");
#endif
}

}  // namespace

void Backoff::reset() {
  if (rounds_ < untimed_) {
    rounds_ = 0;
    return;
  }
  const auto now = Clock::now();
  waited_s_ += std::chrono::duration<double>(now - since_).count();
  since_ = now;
  rounds_ = 0;
}

void Backoff::idle() {
  if (++rounds_ < untimed_) return;
  if (rounds_ == untimed_) since_ = Clock::now();
  constexpr std::uint32_t spins = 512;
  if (!oversubscribed_ && rounds_ < spins) {
    relax();
    return;
  }
  // Looking at the clock and at the failure record costs more than a spin, so not in every round.
  if (rounds_ % 16 != 0) {
    sched_yield();
    return;
  }
  detector_.watch(since_);
  const double waited = seconds_since(since_);
  // A message between hosts takes some hundred microseconds. What takes longer is waited for by sleeps of an
  // eighth of the time waited so far: noticed that much later at most, and others, or nobody, have the core
  // meanwhile.
  constexpr double yielding_s = 600e-6;
  if (waited < yielding_s) {
    sched_yield();
    return;
  }
  constexpr double longest_sleep_s = 200e-6;
  const timespec pause{0, static_cast<long>(std::min(waited / 8, longest_sleep_s) * 1e9)};
  nanosleep(&pause, nullptr);
  // From here on every round watches and sleeps.
  rounds_ = (rounds_ / 16) * 16 + 15;
}

}  // namespace ddl
