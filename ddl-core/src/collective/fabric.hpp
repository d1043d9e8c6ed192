#pragma once

#include <cstdint>
#include <vector>

#include "topology/topology.hpp"
#include "transport/mpi_link.hpp"
#include "transport/shared_segment.hpp"

namespace ddl {

/// Where the time of this rank went, in seconds, and what it moved.
struct Counters {
  std::uint64_t calls = 0;
  std::uint64_t bytes = 0;          ///< of the callers' buffers
  std::uint64_t messages_sent = 0;  ///< between hosts, by this rank
  std::uint64_t bytes_sent = 0;     ///< between hosts, by this rank
  double total_s = 0;
  double post_s = 0;    ///< copying to the stage
  double reduce_s = 0;  ///< reducing, all tiers
  double gather_s = 0;  ///< copying from the stages
  double wait_s = 0;    ///< nothing to do
};

/// What the collectives move bytes with: the group's shared memory, and messages between groups.
struct Fabric {
  const Topology& topology;
  const int rank;
  const std::vector<const Group*> groups;  ///< innermost groups
  std::size_t group = 0;                   ///< index of this rank's
  std::size_t self = 0;                    ///< index of this rank in its group
  SharedSegment& segment;
  MpiLink* link = nullptr;  ///< null when there is one group only
  Counters& counters;
  /// Chunks completed by earlier calls: chunk numbers in the cells go on from call to call.
  std::uint64_t chunks_done = 0;

  const std::vector<int>& members() const { return groups[group]->ranks; }
  RankCell& cell() const { return segment.cell(self); }

  bool all(std::atomic<std::uint64_t> RankCell::*counter, std::uint64_t at_least) const {
    for (std::size_t i = 0; i < segment.ranks(); ++i) {
      if ((segment.cell(i).*counter).load(std::memory_order_acquire) < at_least) return false;
    }
    return true;
  }

  void send(const void* from, std::size_t bytes, int to, int tag, Requests& requests) const {
    link->send(from, bytes, to, tag, requests);
    ++counters.messages_sent;
    counters.bytes_sent += bytes;
  }

  /// Chunks of different slots, tiers and directions never meet in one tag; MPI keeps the order within a tag.
  static int tag(std::size_t slot, std::size_t tier, int direction) {
    return static_cast<int>(1 + (tier * kTagSlots + slot) * 2) + direction;
  }
  static constexpr std::size_t kTagSlots = 64;
};

}  // namespace ddl
