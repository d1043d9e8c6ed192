#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "collective/chunk_spec.hpp"
#include "plan/exchange.hpp"
#include "plan/link_model.hpp"
#include "plan/schedule.hpp"
#include "topology/topology.hpp"

namespace ddl {

/// What of an all-reduce decides how it is done. The same on all ranks.
struct AllreduceShape {
  std::size_t elements = 0;
  std::size_t width = 4;          ///< bytes of an element
  bool order_free = false;        ///< every order of reduction gives the same bits
  bool rounds_each_step = false;  ///< 16-bit types: every reduction rounds
  bool one_buffer = true;         ///< the elements lie in one piece
  bool encoded = false;           ///< with a reduced wire format
  std::size_t bytes() const { return elements * width; }
};

/// How an all-reduce is done.
struct Plan {
  std::size_t elements = 0;  ///< of the calls that it is for
  bool plain_mpi = false;    ///< MPI_Allreduce; the rest is then unused
  Shape shape = Shape::kTiers;
  std::vector<Algorithm> algorithms;  ///< by tier above the innermost
  Chunking chunking;
  std::vector<std::size_t> windows;  ///< bytes under way, by tier above the innermost
  double predicted_s = 0;
  std::size_t candidate = 0;  ///< number of the candidate, for Planner::learn
  std::uint64_t id = 0;       ///< the same for calls that do the same; 0: not chosen by choose()

  /// For example "tiers: direct, recursive doubling; 256 KiB chunks".
  std::string to_text() const;
};

/// How far results may depend on how they are computed.
enum class Determinism {
  kRun,        ///< bitwise equal from run to run on the same placement
  kPlacement,  ///< bitwise equal for any placement, topology and grouping
  kOff,        ///< only equal on all ranks
};

/**
 * Bytes that a rank may have under way in a tier. A link that several hosts share is filled by all of them at
 * once, and its queue is soon full: what exceeds it is dropped, and sent again much later. A host's own link
 * has the host's own queue before it, which does not drop.
 *
 * @param hosts_below  hosts that share the link
 */
std::size_t window_bytes(std::size_t hosts_below);

struct PlannerRules {
  char mode = 'p';
  Determinism determinism = Determinism::kRun;
};

/**
 * Chooses how an all-reduce is done: predicts the candidates from the links' figures, and corrects itself by
 * what was measured.
 *
 * Deterministic: planners that are given the same topology, figures and times make the same choices, which is
 * how all ranks agree without asking each other. Cost model: E. Chan et al., "Collective communication:
 * theory, practice, and experience" (2007), tiers as in M. Cho et al., "BlueConnect" (2019), with overlapping
 * chunks.
 */
class Planner {
 public:
  Planner(const Topology& topology, PlannerRules rules, LinkModel model);

  /// How to do this call. Valid until the next call.
  const Plan& choose(const AllreduceShape& shape);

  /// @param candidate  of the plan that was followed
  /// @param seconds    what the slowest rank needed; the same on all ranks
  void learn(const AllreduceShape& shape, std::size_t candidate, double seconds);

  /// Candidates for this call, the one predicted best first.
  std::vector<Plan> candidates(const AllreduceShape& shape) const;
  double predict(const Plan& plan, const AllreduceShape& shape) const;

  const LinkModel& model() const { return model_; }
  void set_model(LinkModel model);
  /// What was chosen for calls of this size, why, and how long it took; "" when nothing has changed since it
  /// was asked last.
  std::string explain(const AllreduceShape& shape);

 private:
  struct Candidate {
    Plan plan;
    double measured_s = 0;  ///< the least that was measured; 0: not tried
    int tries = 0;
  };
  /// What is known about calls of about one size.
  struct Record {
    std::vector<Candidate> candidates;
    std::size_t chosen = 0;
    std::uint64_t learned = 0;
    bool exploring = false;
    bool settled = false;
    double last_s = 0;
    int off = 0;  ///< calls in a row that took far longer or shorter than expected
    bool corrected = false;
    bool news = true;        ///< for explain()
    std::vector<Plan> made;  ///< for the numbers of elements seen lately
  };
  struct TierFacts {
    std::size_t groups = 1;       ///< members of the largest group of this tier
    std::size_t hosts_below = 1;  ///< hosts below one member
    std::size_t ranks_below = 1;  ///< ranks below one member
  };
  using Key = std::uint64_t;
  static Key key_of(const AllreduceShape& shape);
  Plan finish(Plan plan, const AllreduceShape& shape) const;
  bool allowed(const Plan& plan, const AllreduceShape& shape) const;

  const PlannerRules rules_;
  LinkModel model_;
  std::vector<TierFacts> tiers_;
  std::size_t hosts_ = 1;
  std::size_t ranks_a_host_ = 1;
  std::size_t ranks_ = 1;
  std::map<Key, Record> records_;
  std::uint64_t plans_made_ = 0;
};

}  // namespace ddl
