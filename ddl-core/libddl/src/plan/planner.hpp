#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "plan/cost_model.hpp"
#include "plan/link_model.hpp"
#include "plan/plan.hpp"
#include "topology/topology.hpp"

namespace ddl {

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

/// Up to this size chunks share one division of the stage, so that calls of different sizes follow each other
/// without waiting.
inline constexpr std::size_t kSmallSlotBytes = std::size_t{256} << 10;

struct PlannerRules {
  char mode = 'p';
  Determinism determinism = Determinism::kRun;
  std::size_t stage_bytes = std::size_t{8} << 20;  ///< staging memory of a rank
  /// Whether the only host has more ranks than cores.
  bool taking_turns = false;
};

/// Set by tests alone, before anything is planned, so that a run repeats itself whatever the clock says:
/// planners then take their candidates in turn, for links of these figures (the last are also those of the
/// tiers above).
inline std::optional<LinkModel> rehearsed_links;

/**
 * Chooses how an all-reduce is done: predicts the candidates from the links' figures, and corrects itself by
 * what was measured.
 *
 * Deterministic: planners that are given the same topology, figures and times make the same choices, which is
 * how all ranks agree without asking each other.
 */
class Planner {
 public:
  Planner(const Topology& topology, PlannerRules rules, LinkModel model);
  Planner(ClusterShape cluster, PlannerRules rules, LinkModel model);
  Planner(const Planner&) = delete;
  Planner& operator=(const Planner&) = delete;

  /// How to do this call. Valid until the next call.
  const Plan& choose(const AllreduceShape& shape);

  /// @param candidate  of the plan that was followed
  /// @param seconds    what the slowest rank needed; the same on all ranks
  void learn(const AllreduceShape& shape, std::size_t candidate, double seconds);

  /// Candidates for this call, the one predicted best first.
  std::vector<Plan> candidates(const AllreduceShape& shape) const;
  /// Whether this call may be done so: it is correct, keeps the order of sums that is asked for, and is no
  /// waste at this size. What makes chunks and times of it is finish().
  bool allows(const Plan& plan, const AllreduceShape& shape) const;
  /// Adds to a plan what it leaves open: the cuts, the windows, the time.
  Plan finish(Plan plan, const AllreduceShape& shape) const;

  const ClusterShape& cluster() const { return cluster_; }
  const LinkModel& model() const { return model_; }
  void set_model(LinkModel model);
  /// What was chosen for calls of this size, why, and how long it took; "" when nothing has changed since it
  /// was asked last.
  std::string explain(const AllreduceShape& shape);

 private:
  struct Candidate {
    Plan plan;
    double measured_s = 0;      ///< medians of what was measured, the newest ones most; 0: not tried
    std::vector<double> tries;  ///< seconds of the calls since then
  };
  /// What is known about calls of about one size.
  struct Record {
    std::vector<Candidate> candidates;
    std::size_t chosen = 0;
    std::size_t turn = 0;  ///< of the candidates, in a rehearsal
    std::uint64_t learned = 0;
    bool exploring = false;
    bool settled = false;  ///< all candidates have been tried
    double last_s = 0;
    int off = 0;  ///< calls in a row that took far longer or shorter than predicted
    bool corrected = false;
    std::uint64_t retry_at = 0;  ///< number of the call after which all are tried again
    bool news = true;            ///< for explain()
    std::vector<Plan> made;      ///< for the numbers of elements seen lately
  };
  /// On which side of each limit a size is. Nothing else of the size decides what allows() says, so that the
  /// candidates of a record are allowed for all of its calls.
  struct SizeClass {
    bool some = false;      ///< there are elements
    bool small = false;     ///< the leaders' packets have room for it
    bool whole = false;     ///< leaders send it in one piece
    bool one_shot = false;  ///< it costs latency, not bytes, even if all send all the others everything
    bool tried = false;     ///< all candidates are tried from the start
    bool operator==(const SizeClass&) const = default;
  };
  SizeClass size_class(const AllreduceShape& shape) const;
  /// Calls of about one size.
  struct Key {
    AllreduceShape calls;  ///< its elements are a number that sizes alike have in common
    SizeClass size;
    bool operator==(const Key&) const = default;
  };
  /// Of what differs most among the calls of a program.
  struct KeyHash {
    std::size_t operator()(const Key& key) const {
      return key.calls.elements * 64 + key.calls.width * 4 + (key.calls.order_free ? 2 : 0) +
             (key.calls.one_buffer ? 1 : 0);
    }
  };
  Key key_of(const AllreduceShape& shape) const;
  using Records = std::unordered_map<Key, Record, KeyHash>;
  /// The record of calls of about this size, with its key.
  Records::value_type& record_of(const AllreduceShape& shape);
  static void try_all(Record& record);
  static void settle(Record& record);
  static bool adds_in_steps(const Plan& plan);
  Plan finish_in_tiers(Plan plan, const AllreduceShape& shape) const;
  Plan finish_on_device(Plan plan, const AllreduceShape& shape) const;
  /// How an all-reduce of a GPU's memory that NCCL can do gets to the tiers: all ways where times may decide,
  /// else the one that is predicted best.
  std::vector<Plan> device_candidates(const AllreduceShape& shape) const;
  /// Candidates where ranks of a host share memory of GPUs, and those that are staged in the host's memory.
  std::vector<Plan> ipc_candidates(const AllreduceShape& shape) const;
  /// The best of NCCL's plans, sorted, or those of the host's memory if they are predicted faster: the orders
  /// of their sums differ, so that the choice must not change from one call to the next.
  std::vector<Plan> nccl_or_staged(std::vector<Plan> plans, const AllreduceShape& shape) const;
  /// The only plan of a -mode that names the algorithm.
  Plan forced_plan(Algorithm algorithm, const AllreduceShape& shape) const;
  // Families of candidates, each of which adds those that are allowed.
  void add_plan(Shape form, std::vector<Algorithm> algorithms, const AllreduceShape& shape,
                std::vector<Plan>& plans) const;
  /// Tier after tier, with each algorithm at the top.
  void add_tier_plans(const AllreduceShape& shape, std::vector<Plan>& plans) const;
  /// One rank of each host exchanges whole messages, with headers.
  void add_leader_plans(const AllreduceShape& shape, std::vector<Plan>& plans) const;
  /// Among all hosts at once, as if there were no racks.
  void add_rackless_plans(const AllreduceShape& shape, std::vector<Plan>& plans) const;
  /// The best one so far, in chunks of the other sizes.
  void add_chunk_sizes(const AllreduceShape& shape, std::vector<Plan>& plans) const;
  std::vector<Algorithm> in_every_tier(Algorithm algorithm) const {
    return std::vector(cluster_.tiers.size(), algorithm);
  }
  bool keeps_bits(const Plan& plan, const AllreduceShape& shape) const;

  const ClusterShape cluster_;
  const PlannerRules rules_;
  LinkModel model_;
  Records records_;
  /// What was looked for last: a call looks twice, and mostly repeats the one before.
  AllreduceShape newest_shape_;
  Records::value_type* newest_ = nullptr;
  std::uint64_t plans_made_ = 0;
};

}  // namespace ddl
