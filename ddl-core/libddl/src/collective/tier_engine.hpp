#pragma once

#include <cstddef>

#include "collective/reduction_call.hpp"
#include "plan/schedule.hpp"

namespace ddl {

/// Up: towards the sums, by a reduce-scatter. Down: back to everybody, by an all-gather.
enum class TierDirection { kUp = 0, kDown = 1 };

/**
 * Carries out the rounds of one chunk in a tier between groups, on the interval that the local exchange has
 * staged. One round at a time.
 */
class TierEngine {
 public:
  virtual ~TierEngine() = default;

  /// Starts a round. Only after all ranks are known to make the same call.
  virtual void start(const ReductionWork& work, std::size_t tier, const Round& round,
                     TierDirection direction) = 0;
  /// Whether all that was started has arrived, and left.
  virtual bool complete() const = 0;
  /// Ends the round that is complete: what has arrived is added up.
  virtual void finish(const ReductionWork& work, std::size_t tier, const Round& round,
                      TierDirection direction) = 0;
  /// Between up and down: what others get in a reduced format is what this rank goes on with.
  virtual void turn(const ReductionWork& work) = 0;
};

}  // namespace ddl
