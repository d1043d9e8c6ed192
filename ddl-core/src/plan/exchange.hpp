#pragma once

#include <cstddef>
#include <vector>

#include "support/types.hpp"
#include "topology/topology.hpp"

namespace ddl {

/// A stretch of elements that exactly one rank of every child of a group owns after the tier below, and which
/// those owners therefore reduce among themselves.
struct Segment {
  Interval range;
  std::vector<int> owners;  ///< ranks, one a child, in the order of the children
  std::size_t mine = 0;     ///< index of this rank in owners

  /// What owners[i] owns after the reduce-scatter of this tier.
  Interval part(std::size_t i, std::size_t grain) const { return part_of(range, owners.size(), i, grain); }
};

/**
 * What one rank does with a chunk of `count` elements, tier after tier.
 *
 * Ownership is by intervals: after the reduce-scatter of a tier every element of the chunk has exactly one
 * owner in each group. Groups of unequal size cut the chunk at different places; the segments are the common
 * refinement of the children's cuts, so that uneven groups need no special case and every byte crosses a tier
 * once each way.
 */
struct Exchange {
  std::size_t grain = 1;
  std::vector<Interval> local;              ///< interval of each rank of the innermost group, by its index
  std::vector<std::vector<Segment>> tiers;  ///< tiers above the innermost, in which this rank takes part

  /// Elements that the receives of tier t need beyond the chunk itself.
  std::size_t scratch(std::size_t t) const;
};

/// @param grain  inner bounds are multiples of this many elements
Exchange plan_exchange(const Topology& topology, int rank, std::size_t count, std::size_t grain);

/// How a call is cut: the same on all ranks, as it follows from the topology and the call's arguments alone.
struct Chunking {
  std::size_t chunk_elements = 0;
  std::size_t chunks = 0;
};

/// Staging memory of a rank: kSlots chunks are under way at a time, each of at most kMaxChunkBytes.
inline constexpr std::size_t kSlots = 4;
inline constexpr std::size_t kMaxChunkBytes = std::size_t{1} << 20;

Chunking plan_chunks(const Topology& topology, std::size_t count, DDL_Type type);

/// Parent and children (as indices of groups) of group `self` in a binomial tree over `groups` groups with
/// `root` on top. parent is -1 at the root.
struct BinomialNode {
  int parent = -1;
  std::vector<int> children;
};
BinomialNode binomial_node(int groups, int root, int self);

/// The innermost groups of the tree in its order, each with its ranks.
std::vector<const Group*> innermost_groups(const Topology& topology);

}  // namespace ddl
