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
  if (falling_asleep_) wake_up();
  if (rounds_ < untimed_) {
    rounds_ = 0;
    return;
  }
  const auto now = Clock::now();
  waited_s_ += std::chrono::duration<double>(now - since_).count();
  since_ = now;
  rounds_ = 0;
}

void Backoff::idle(WaitsFor what) {
  if (falling_asleep_) {
    // Nothing was there at the last look either.
    sleep(what);
    return;
  }
  if (++rounds_ < untimed_) return;
  if (rounds_ == untimed_) since_ = Clock::now();
  constexpr std::uint32_t spins = 512;
  if (!oversubscribed_ && rounds_ < spins) {
    relax();
    return;
  }
  const bool woken = what == WaitsFor::kMemory;
  // Where ranks share processors, whoever has nothing to do leaves them to the others at once. Otherwise
  // looking at the clock costs more than a spin, so not in every round.
  const bool at_once = woken && oversubscribed_;
  if (!at_once) {
    if (rounds_ % 16 != 0) {
      sched_yield();
      return;
    }
    // A message between hosts takes some hundred microseconds. What takes longer is waited for by sleeps of
    // an eighth of the time waited so far: noticed that much later at most, and others, or nobody, have the
    // core meanwhile. To be woken takes some ten microseconds.
    const double yielding_s = woken ? 100e-6 : 600e-6;
    detector_.watch(since_);
    if (seconds_since(since_) < yielding_s) {
      sched_yield();
      return;
    }
    // From here on every round watches and sleeps.
    rounds_ = (rounds_ / 16) * 16 + 15;
  }
  falling_asleep_ = true;
  rings_seen_ = segment_.prepare_sleep();
}

void Backoff::sleep(WaitsFor what) {
  // A ring comes when it is time, messages have to be looked for. Without either: to see whether ranks have
  // ended, and to answer those who ask.
  constexpr double least_memory_sleep_s = 1e-3;
  constexpr double longest_memory_sleep_s = 20e-3;
  const double eighth = seconds_since(since_) / 8;
  const double limit = what == WaitsFor::kMemory
                           ? std::clamp(eighth, least_memory_sleep_s, longest_memory_sleep_s)
                           : std::min(eighth, longest_message_sleep_s_);
  const bool rung = segment_.sleep(rings_seen_, limit);
  wake_up();
  if (!rung || ++sleeps_ % 16 == 0) detector_.watch(since_);
}

}  // namespace ddl
