#pragma once

#include <cstddef>
#include <string>

#include "collective/reduction_call.hpp"
#include "support/error.hpp"

namespace ddl {

/// What a step of something that never blocks has brought about.
enum class Progress {
  kWaiting,  ///< nothing: it waits for others
  kMoved,    ///< something, but it is not over
  kDone
};

/// Before bytes are staged: the sizes come from the planner, the room from what was reserved at the start.
/// @throws Error (DDL_ERR_INTERNAL)
inline void check_room(std::size_t bytes, std::size_t room) {
  if (bytes <= room) return;
  throw Error(
      DDL_ERR_INTERNAL,
      "a chunk of " + std::to_string(bytes) + " bytes was to be staged in " + std::to_string(room) + " bytes",
      "", "please report this");
}

/**
 * What one chunk does inside the innermost group, below the tiers: bring the caller's input to where the
 * group can read it, reduce the interval that this rank owns, and bring everybody's intervals to the caller's
 * output. In between, the tiers work on this rank's interval where it is staged.
 *
 * The steps are made in this order, each until it is done.
 */
class LocalExchange {
 public:
  virtual ~LocalExchange() = default;

  /// Begins another chunk; `work` outlives it.
  virtual void start(const ReductionWork& work) = 0;
  /// The input is staged.
  virtual Progress post() = 0;
  /// This rank's interval is reduced within the group. @param agreed  the group makes the same call
  virtual Progress reduce(bool agreed) = 0;
  /// The group knows that this rank's interval is finished.
  virtual Progress publish() = 0;
  /// The output has what this rank wants of the result, and this rank's share of the staging buffers is free.
  virtual Progress gather() = 0;

  /// Where an element of the chunk is staged by this rank: host memory.
  virtual char* staged(std::size_t element) const = 0;
};

}  // namespace ddl
