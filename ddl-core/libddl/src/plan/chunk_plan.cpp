#include "plan/chunk_plan.hpp"

#include <algorithm>
#include <utility>

namespace ddl {
namespace {

bool holds(const Group& group, int rank) {
  return std::binary_search(group.ranks.begin(), group.ranks.end(), rank);
}

std::size_t child_with(const Group& group, int rank) {
  std::size_t at = 0;
  while (!holds(group.children[at], rank)) ++at;
  return at;
}

/// The children of a group, beginning with the one that holds `root`.
std::vector<const Group*> rotated(const Group& group, int root) {
  const std::size_t first = child_with(group, root);
  std::vector<const Group*> children;
  for (std::size_t i = 0; i < group.children.size(); ++i) {
    children.push_back(&group.children[(first + i) % group.children.size()]);
  }
  return children;
}

int relay_of(const Group& group, int root) { return holds(group, root) ? root : group.ranks.front(); }

/// Relays of the innermost groups below `group`, branch by branch from `root` on.
void collect_chain(const Group& group, int root, std::vector<int>& relays) {
  if (group.innermost()) {
    relays.push_back(relay_of(group, root));
    return;
  }
  const int here = relay_of(group, root);
  for (const Group* child : rotated(group, here)) collect_chain(*child, relay_of(*child, here), relays);
}

void add_binomial(const Group& group, int root, RelayNode& node) {
  if (group.innermost()) return;
  std::vector<int> relays;
  const Group* inner = nullptr;
  std::size_t self = 0;
  bool relaying = false;
  for (const Group* child : rotated(group, root)) {
    relays.push_back(relay_of(*child, root));
    if (holds(*child, node.relay)) inner = child;
    if (relays.back() == node.relay) {
      self = relays.size() - 1;
      relaying = true;
    }
  }
  if (relaying) {
    const BinomialNode here = binomial_node(static_cast<int>(relays.size()), 0, static_cast<int>(self));
    if (here.parent >= 0) node.parent = relays[static_cast<std::size_t>(here.parent)];
    for (const int child : here.children) node.children.push_back(relays[static_cast<std::size_t>(child)]);
  }
  if (inner != nullptr) add_binomial(*inner, relay_of(*inner, root), node);
}

const Group& innermost_with(const Group& tree, int rank) {
  const Group* group = &tree;
  while (!group->innermost()) group = &group->children[child_with(*group, rank)];
  return *group;
}

}  // namespace

std::size_t memory_of(const ChunkPlan& plan) {
  std::size_t bytes =
      sizeof plan + (plan.exchange.local.size() + plan.exchange.added.size()) * sizeof(Interval);
  for (const auto& tier : plan.exchange.tiers) {
    for (const Segment& segment : tier) bytes += sizeof segment + segment.owners.size() * sizeof(int);
  }
  for (const auto* direction : {&plan.up, &plan.down}) {
    for (const auto& rounds : *direction) {
      for (const Round& round : rounds) {
        bytes += sizeof round + (round.sends.size() + round.receives.size()) * sizeof(Transfer);
        for (const Reduction& reduction : round.reductions) {
          bytes += sizeof reduction + reduction.operands.size() * sizeof(std::size_t);
        }
      }
    }
  }
  return bytes;
}

ChunkPlan plan_allreduce_chunk(const Group& tree, int rank, std::size_t count, std::size_t grain,
                               const std::vector<Algorithm>& algorithms, const Nesting* nesting,
                               bool rounds_each_step) {
  ChunkPlan plan;
  plan.exchange = plan_exchange(tree, rank, count, grain);
  for (std::size_t t = 0; t < plan.exchange.tiers.size(); ++t) {
    const Algorithm algorithm = t < algorithms.size() ? algorithms[t] : Algorithm::kDirect;
    TierSchedule tier = schedule_tier(plan.exchange.tiers[t], algorithm, grain, nesting, rounds_each_step);
    plan.up.push_back(std::move(tier.up));
    plan.down.push_back(std::move(tier.down));
    plan.scratch = std::max(plan.scratch, tier.scratch);
    plan.wide = std::max(plan.wide, tier.wide);
    plan.by_mpi.push_back(algorithm == Algorithm::kMpi ? 1 : 0);
    if (algorithm == Algorithm::kMpi) {
      // One pass up and one down, without transfers of our own.
      plan.up.back().resize(1);
      plan.down.back().resize(1);
      plan.scratch = std::max(plan.scratch, count);
    }
  }
  return plan;
}

ChunkPlan plan_reduce_chunk(const Group& tree, int rank, int root, std::size_t count, std::size_t grain) {
  ChunkPlan plan = plan_allreduce_chunk(tree, rank, count, grain, {});
  for (auto& rounds : plan.down) rounds.clear();
  const Group* group = &tree;
  for (std::size_t t = plan.down.size(); t-- > 0 && holds(*group, rank) && holds(*group, root);) {
    const std::size_t target = child_with(*group, root);
    plan.down[t] =
        gather_rounds(plan.exchange.tiers[t], places_near_first(group->children.size())[target], grain);
    group = &group->children[target];
  }
  return plan;
}

RelayNode relay_node(const Group& tree, int rank, int root, bool chain) {
  RelayNode node;
  const Group& mine = innermost_with(tree, rank);
  if (chain) {
    node.relay = relay_of(mine, root);
    std::vector<int> relays;
    collect_chain(tree, root, relays);
    const auto at = std::find(relays.begin(), relays.end(), node.relay);
    if (at != relays.begin()) node.parent = *(at - 1);
    if (at + 1 != relays.end()) node.children.push_back(*(at + 1));
    return node;
  }
  node.relay = relay_of(mine, root);
  add_binomial(tree, root, node);
  return node;
}

}  // namespace ddl
