#include "engine/backoff.hpp"

#include <sched.h>

#include <algorithm>
#include <ctime>

#include "support/stopwatch.hpp"

namespace ddl {
namespace {

/// A message between hosts takes some hundred microseconds, to be woken some ten.
constexpr double kYieldsForMessages_s = 600e-6;
constexpr double kYieldsForMemory_s = 100e-6;
/// How much of what is known of waits the last one replaces.
constexpr double kNewest = 0.25;

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

bool Backoff::patient() const { return usual_s_ >= kYieldsForMessages_s; }

void Backoff::reset() {
  if (falling_asleep_) wake_up();
  if (rounds_ < untimed()) {
    rounds_ = 0;
    return;
  }
  const auto now = Clock::now();
  const double waited_s = std::chrono::duration<double>(now - since_).count();
  waited_s_ += waited_s;
  usual_s_ += kNewest * (waited_s - usual_s_);
  since_ = now;
  rounds_ = 0;
}

void Backoff::idle(WaitsFor what) {
  if (falling_asleep_) {
    // Nothing was there at the last look either.
    sleep(what);
    return;
  }
  if (++rounds_ < untimed()) return;
  if (rounds_ == untimed()) since_ = Clock::now();
  constexpr std::uint32_t spins = 512;
  if (!oversubscribed_ && !patient() && rounds_ < spins) {
    relax();
    return;
  }
  const bool woken = what == WaitsFor::kMemory;
  // Where ranks share processors, whoever has nothing to do leaves them to the others at once. Otherwise
  // looking at the clock costs more than a spin, so not in every round.
  const bool at_once = (woken && oversubscribed_) || patient();
  if (!at_once) {
    if (rounds_ % 16 != 0) {
      sched_yield();
      return;
    }
    // What takes longer is waited for by sleeps, so that others, or nobody, have the core meanwhile.
    const double yielding_s = woken ? kYieldsForMemory_s : kYieldsForMessages_s;
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

double Backoff::message_sleep_s() const {
  // What comes is noticed so much later: an eighth of the time waited so far, or half of what is usual where
  // that is little beside all waits of the call.
  constexpr double kLittle = 1.0 / 64;
  const double usual = std::min(usual_s_ / 2, waited_s_ * kLittle);
  return std::min(std::max(seconds_since(since_) / 8, usual), longest_message_sleep_s_);
}

void Backoff::sleep(WaitsFor what) {
  // A ring comes when it is time, messages have to be looked for. Without either: to see whether ranks have
  // ended, and to answer those who ask.
  constexpr double least_memory_sleep_s = 1e-3;
  constexpr double longest_memory_sleep_s = 20e-3;
  const double limit = what == WaitsFor::kMemory ? std::clamp(seconds_since(since_) / 8, least_memory_sleep_s,
                                                              longest_memory_sleep_s)
                                                 : message_sleep_s();
  const bool rung = segment_.sleep(rings_seen_, limit);
  wake_up();
  if (!rung || ++sleeps_ % 16 == 0) detector_.watch(since_);
}

}  // namespace ddl
