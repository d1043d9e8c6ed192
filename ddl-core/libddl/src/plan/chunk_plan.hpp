#pragma once

#include <cstddef>
#include <vector>

#include "plan/exchange.hpp"
#include "plan/schedule.hpp"

namespace ddl {

/// All that one rank does with a chunk of a certain size.
struct ChunkPlan {
  Exchange exchange;
  std::vector<std::vector<Round>> up;    ///< by tier, innermost first: towards the sum
  std::vector<std::vector<Round>> down;  ///< by tier, innermost first: towards those who want it
  std::vector<char> by_mpi;              ///< by tier: MPI's collective operations instead of rounds
  std::size_t scratch = 0;               ///< elements of scratch memory, the most of all tiers
  std::size_t wide = 0;                  ///< wide elements of scratch memory, likewise
};

/// Bytes of memory that a plan takes, about.
std::size_t memory_of(const ChunkPlan& plan);

/// @param algorithms  by tier above the innermost, innermost first; missing ones are kDirect
/// @param nesting     and rounds_each_step: as in schedule_tier
ChunkPlan plan_allreduce_chunk(const Group& tree, int rank, std::size_t count, std::size_t grain,
                               const std::vector<Algorithm>& algorithms, const Nesting* nesting = nullptr,
                               bool rounds_each_step = false);

/// The sum goes to rank `root` only: each tier's parts to the side of the tree where it is.
ChunkPlan plan_reduce_chunk(const Group& tree, int rank, int root, std::size_t count, std::size_t grain);

/// Who gives a chunk to whom in a broadcast. Each innermost group has one relay: the root in its own, the
/// first rank elsewhere.
struct RelayNode {
  int relay = 0;              ///< of this rank's group
  int parent = -1;            ///< relay that this group's relay receives from; -1 at the root
  std::vector<int> children;  ///< relays that it sends to, those with most below them first
};

/**
 * @param chain  one after the other, all groups of a branch before the next branch: every link carries every
 * byte once, but the last group is far away. Otherwise a binomial tree in every tier: log2 steps, but the
 * first link carries every byte several times.
 */
RelayNode relay_node(const Group& tree, int rank, int root, bool chain);

}  // namespace ddl
