#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "collective/wire/wire_format.hpp"
#include "plan/chunk_plan.hpp"
#include "plan/plan.hpp"
#include "topology/topology.hpp"

namespace ddl {

/// Up to this size a chunk is not divided among the ranks of a host.
inline constexpr std::size_t kUndividedBytes = std::size_t{32} << 10;
/// Likewise where the only host has so many ranks that they are divided into domains.
inline constexpr std::size_t kUndividedAmongMany = 256;

/// Elements of a width in bytes that parts of a chunk are rounded to.
std::size_t grain_of(std::size_t width);

/// What the calls of one communicator have planned so far, so that the next of the same size need not.
class PlanCache {
 public:
  /// What a plan means for this rank.
  struct Prepared {
    std::string text;
    std::uint64_t hash = 0;                  ///< of what all ranks must have planned alike
    std::shared_ptr<const ChunkPlan> whole;  ///< of all chunks but the last; null where there are no rounds
    std::shared_ptr<const ChunkPlan> last;
    bool by_mpi = false;         ///< some rounds are MPI's own collective operations
    std::size_t divided_in = 0;  ///< see divided_in()
  };

  /// @param oversubscribed  more ranks than cores on this host
  /// @param many  this rank's host has domains
  PlanCache(const Topology& topology, int rank, bool oversubscribed, bool many = false);
  /// Up to so many bytes the ranks of the only host reduce all for themselves, where each has a core.
  std::size_t undivided_bytes() const { return undivided_bytes_; }
  /// Whether the only host has more ranks than cores.
  bool taking_turns() const { return taking_turns_; }

  const Nesting& nesting() const { return nesting_; }
  /// As ddl::order_of_owners() of the tiers; null where there is none.
  const std::vector<int>* order_of_owners() const { return owners_ ? &*owners_ : nullptr; }
  /// This rank's place in it.
  std::size_t place_of_owner() const { return place_; }

  /// Makes room, to be called while no call uses a plan: what was not used lately is discarded, and what the
  /// other functions gave is then invalid.
  void trim();
  /// Bytes that the plans take, about.
  std::size_t memory() const { return memory_; }
  /// @param root  the only rank that wants the result, or -1: all
  /// @param rounds_each_step  as in schedule_tier
  const ChunkPlan& chunk_plan(const Plan& plan, std::size_t count, std::size_t grain, int root = -1,
                              bool rounds_each_step = false);
  const Prepared& prepared(const Plan& plan, const AllreduceShape& shape, WireFormat wire);
  /**
   * Level of the sums in which the plan divides an average: 0 the innermost groups, t the t-th tier above.
   *
   * The last one, so that all before it are the sum's. But where partial sums are rounded to float16, or
   * sent in a reduced wire format, they could be too large for that: the first one, before anything is
   * rounded.
   * @param narrow  partial sums may be too large for what they are rounded to
   */
  std::size_t divided_in(const Plan& plan, bool narrow) const;
  /// Who gives a broadcast from `root` to whom. @param chain  as in relay_node()
  const RelayNode& relays(int root, bool chain);

 private:
  struct Kept {
    Shape shape;
    std::vector<Algorithm> algorithms;
    std::size_t count;
    std::size_t grain;
    int root;
    bool rounds_each_step;
    std::shared_ptr<const ChunkPlan> plan;
    std::uint64_t used = 0;  ///< number of the use of the cache that was its last
  };
  struct KeptPrepared {
    Prepared prepared;
    std::uint64_t used = 0;
  };

  const std::shared_ptr<const ChunkPlan>& keep(const Plan& plan, std::size_t count, std::size_t grain,
                                               int root, bool rounds_each_step);
  void discard_before(std::uint64_t use);

  const Topology& topology_;
  const int rank_;
  const bool taking_turns_;
  const std::size_t undivided_bytes_;
  const Nesting nesting_;
  const std::optional<std::vector<int>> owners_;
  std::size_t place_ = 0;
  std::map<Shape, Group> trees_;
  std::map<Shape, std::vector<LevelSizes>> levels_;           ///< of trees_
  std::unordered_multimap<std::uint64_t, Kept> chunk_plans_;  ///< by a hash of what they are for
  std::unordered_map<std::uint64_t, KeptPrepared> prepared_;  ///< by Plan::id
  std::unordered_map<std::uint64_t, RelayNode> relays_;       ///< by 2 * root + chain
  std::uint64_t uses_ = 0;
  std::size_t memory_ = 0;
};

}  // namespace ddl
