#pragma once

#include <cstddef>
#include <vector>

#include "plan/link_model.hpp"
#include "plan/plan.hpp"
#include "topology/topology.hpp"

namespace ddl {

/// What a prediction needs to know of a tier above the innermost.
struct TierFacts {
  std::size_t groups = 1;       ///< members of the largest group of this tier
  std::size_t hosts_below = 1;  ///< innermost groups below one member, the most
  std::size_t ranks_below = 1;  ///< ranks below one member, the most
  std::size_t segments = 1;  ///< that a rank of the smallest member owns, as the largest one has more owners
};

/// The sizes of a cluster, without names and numbers of ranks.
struct ClusterShape {
  std::vector<TierFacts> tiers;        ///< above the innermost, innermost first
  std::size_t hosts = 1;               ///< innermost groups
  std::size_t ranks_a_host = 1;        ///< the most
  std::size_t least_ranks_a_host = 1;  ///< so many own parts in the tiers, on every host
  std::size_t ranks = 1;
  bool in_pairs = false;  ///< pairwise_distances() exist

  static ClusterShape of(const Topology& topology);
};

/// How long an all-reduce is predicted to take, and what keeps it busy for how long.
struct Cost {
  double seconds = 0;
  double memory_s = 0;          ///< reduction in the innermost groups
  std::vector<double> tiers_s;  ///< each tier's busiest link
  double work_s = 0;            ///< processor time of a rank
  double latency_s = 0;         ///< of messages that wait for each other
};

/**
 * The time of an all-reduce of `shape` done as `plan` says.
 *
 * Cost model: E. Chan et al., "Collective communication: theory, practice, and experience" (2007), tiers as
 * in M. Cho et al., "BlueConnect" (2019), with overlapping chunks: about the time of the busiest part, and
 * that of one chunk through all parts.
 */
Cost cost_of(const Plan& plan, const AllreduceShape& shape, const ClusterShape& cluster,
             const LinkModel& model);

/// Rounds of kDoubling or kMultiplying among the leaders of the hosts.
std::size_t leaders_rounds(Algorithm algorithm, const ClusterShape& cluster);

/// Rounds of a recursive algorithm among n.
double rounds_of_halving(std::size_t n);

}  // namespace ddl
