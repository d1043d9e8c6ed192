#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "support/types.hpp"
#include "topology/topology.hpp"

namespace ddl {

/**
 * The order in which the children of a group stand in an exchange: ReduceKernel's order then adds up
 * neighbours first, and those who swap most are neighbours. Hosts that follow each other are mostly near each
 * other, also where no racks are known.
 *
 * @return the child that stands at each place: the places' numbers with their bits reversed, where `count` is
 * a power of two; else likewise of those that are left when ReduceKernel has joined neighbours
 */
std::vector<std::size_t> near_first(std::size_t count);
/// The place of each child: the inverse.
std::vector<std::size_t> places_near_first(std::size_t count);

/// A stretch of elements that exactly one rank of every child of a group owns after the tier below, and which
/// those owners therefore reduce among themselves.
struct Segment {
  Interval range;
  std::vector<int> owners;  ///< ranks, one a child, the children near_first()
  std::size_t mine = 0;     ///< index of this rank in owners

  /// What owners[i] owns after the reduce-scatter of this tier.
  Interval part(std::size_t i, std::size_t grain) const { return part_of(range, owners.size(), i, grain); }
};

/**
 * What one rank does with a chunk of `count` elements, tier after tier.
 *
 * Ownership is by intervals: after the reduce-scatter of a tier every element of the chunk has exactly one
 * owner in each group. In every innermost group as many ranks own a part as the smallest of these groups has,
 * so that all cut the chunk at the same places, and a rank has one message for each other group: the smallest
 * group takes as long anyhow. Groups of the tiers above may still cut it at different places; the segments
 * are the common refinement of the children's cuts. Every byte crosses a tier once each way.
 */
struct Exchange {
  std::size_t grain = 1;
  std::vector<Interval> local;  ///< what each rank of the innermost group owns in it, by its index
  /// What each of them adds up, where only some own parts: these get it from the others. Else empty: what it
  /// owns.
  std::vector<Interval> added;
  std::vector<std::vector<Segment>> tiers;  ///< tiers above the innermost, in which this rank takes part
};

/// Which groups the tiers of an exchange are made of.
enum class Shape {
  kTiers,    ///< the topology as it is
  kHosts,    ///< one tier over all innermost groups: racks and the like are not seen
  kRanks,    ///< one tier over all ranks in the order of their numbers, without shared memory
  kLeaders,  ///< the innermost groups' first ranks exchange a small message: see SmallAllreduce
};

const char* name_of(Shape shape);

/// The tree whose tiers an exchange of this shape has.
Group shaped_tree(const Topology& topology, Shape shape);

/// How the children of a shape's only tier are grouped in the topology itself; a leaf has no inner groups.
struct Nesting {
  std::vector<Nesting> inner;  ///< near_first()
  std::size_t leaf = 0;        ///< of a leaf: which child it is
  /// Levels of sums, all branches having as many.
  std::size_t levels() const { return inner.empty() ? 0 : inner.front().levels() + 1; }
};
/// The innermost groups of the topology are the leaves, in the order of the children of Shape::kHosts.
Nesting nesting_of(const Topology& topology);

/**
 * The rounds in which pairs of leaves, whose indices differ in one bit, add up in the order of the nested
 * sums: that bit's value by round. In each level neighbours come first.
 *
 * @return nothing where not all groups of a level have the same power of two of members
 */
std::optional<std::vector<std::size_t>> pairwise_distances(const Nesting& nesting);

/// Members of the groups of one level: the ranks of an innermost group, or the children of one above.
struct LevelSizes {
  std::size_t least = 0;
  std::size_t most = 0;
};
/// By level of the sums: 0 the innermost groups, t the t-th tier above them.
std::vector<LevelSizes> level_sizes(const Group& tree);

/**
 * @param tree   of a topology, or shaped_tree()
 * @param grain  inner bounds are multiples of this many elements
 */
Exchange plan_exchange(const Group& tree, int rank, std::size_t count, std::size_t grain);

/**
 * The ranks in the order in which they own the parts of a chunk after the reduce-scatter of all tiers.
 *
 * @return nothing where they do not own equally much: groups of one tier differ in size. Otherwise, of a
 * chunk of c elements for each rank and with a grain of 1, the k-th one owns [k c, (k+1) c).
 */
std::optional<std::vector<int>> order_of_owners(const Group& tree);

/// Parent and children (as indices of groups) of group `self` in a binomial tree over `groups` groups with
/// `root` on top. parent is -1 at the root.
struct BinomialNode {
  int parent = -1;
  std::vector<int> children;
};
BinomialNode binomial_node(int groups, int root, int self);

/// The innermost groups (of ranks that share memory) below a tree, in its order.
std::vector<const Group*> innermost_groups(const Group& tree);

}  // namespace ddl
