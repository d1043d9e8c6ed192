#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "collective/tier_clock.hpp"
#include "plan/chunking.hpp"
#include "support/timeline.hpp"
#include "topology/topology.hpp"
#include "transport/send_scheduler.hpp"
#include "transport/shared_segment.hpp"

namespace ddl {

static_assert(kCountedChunks >= kMaxSlots);

/// Where the time of this rank went, in seconds, and what it moved.
struct Counters {
  std::uint64_t calls = 0;
  std::uint64_t bytes = 0;  ///< of the callers' buffers
  double total_s = 0;
  double post_s = 0;    ///< copying to the stage
  double reduce_s = 0;  ///< reducing, all tiers
  double gather_s = 0;  ///< copying from the stages
  double wait_s = 0;    ///< nothing to do
};

/// What the collectives move bytes with: the group's shared memory, and messages between groups.
struct CollectiveContext {
  const Topology& topology;
  const int rank;
  const std::vector<const Group*> groups;  ///< innermost groups
  std::size_t group = 0;                   ///< index of this rank's
  std::size_t self = 0;                    ///< index of this rank in its group
  SharedSegment& segment;
  SendScheduler& scheduler;
  Counters& counters;
  std::vector<TierClock>& tier_clocks;  ///< by tier above the innermost
  Timeline* timeline = nullptr;         ///< null: none is written
  /// Chunks completed by earlier calls: chunk numbers in the cells go on from call to call.
  std::uint64_t chunks_done = 0;
  /// How the call before divided the stages.
  std::size_t last_slots = 0;
  std::size_t last_slot_bytes = 0;
  /// Chunks that all ranks of the group had read when it was looked at last.
  std::uint64_t gathered_seen = 0;
  /// Of the look that is not finished: what for, the first ranks that have read so many, the least of theirs.
  std::uint64_t gathered_wanted = 0;
  std::size_t gathered_by = 0;
  std::uint64_t gathered_least = 0;
  /// By the owners of a segment, for the tiers that MPI reduces.
  std::map<std::vector<int>, MPI_Comm> segment_comms = {};
  /// This rank's arrival in the call follows at once: it wakes those who sleep.
  bool arriving = false;

  /// Takes note of how a call divides the stages. Chunks that everybody must have read before its first one
  /// may be staged: with another division a slot overlaps several of the call before.
  std::uint64_t divide_stages(std::size_t slots, std::size_t slot_bytes) {
    const bool same = slots == last_slots && slot_bytes == last_slot_bytes;
    last_slots = slots;
    last_slot_bytes = slot_bytes;
    return same ? 0 : chunks_done;
  }

  /// Whether all ranks of the group have read the first chunks, `count` of them, from the stages.
  bool gathered_by_all(std::uint64_t count) {
    // What was seen before mostly suffices: the counters' cache lines are the other ranks'.
    if (count <= gathered_seen) return true;
    if (segment.divided()) {
      gathered_seen = segment.passed_by_all(self, &RankCell::gathered);
      return count <= gathered_seen;
    }
    if (count != gathered_wanted) {
      gathered_wanted = count;
      gathered_by = 0;
      gathered_least = ~std::uint64_t{0};
    }
    for (; gathered_by < segment.ranks(); ++gathered_by) {
      const std::uint64_t gathered = segment.cell(gathered_by).gathered.load(std::memory_order_acquire);
      if (gathered < count) return false;
      gathered_least = std::min(gathered_least, gathered);
    }
    gathered_seen = gathered_least;
    return true;
  }

  const std::vector<int>& members() const { return groups[group]->ranks; }
  RankCell& cell() const { return segment.cell(self); }
  /// Sets one of this rank's counters, which others wait for.
  void publish(SharedSegment::Counter counter, std::uint64_t value) const {
    segment.publish(self, counter, value, !arriving);
  }

  /// Whether all ranks of the group have come so far.
  /// @param seen  where the group is not divided, the first ranks of which it is known, from 0: most looks
  ///              are in vain where cores are few, and none of these is looked at again
  bool all(SharedSegment::Counter counter, std::uint64_t at_least, std::size_t& seen) const {
    if (segment.divided()) return segment.passed_by_all(self, counter) >= at_least;
    for (; seen < segment.ranks(); ++seen) {
      if ((segment.cell(seen).*counter).load(std::memory_order_acquire) < at_least) return false;
    }
    return true;
  }

  /// Chunks of different slots, tiers and directions never meet in one tag; MPI keeps the order within a tag.
  static int tag(std::size_t slot, std::size_t tier, int direction) {
    return static_cast<int>(1 + (tier * kMaxSlots + slot) * 2) + direction;
  }
};

}  // namespace ddl
