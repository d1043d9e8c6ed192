#include "plan/cost_model.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

namespace ddl {
namespace {

/// What a rank has staged at a time should stay in its share of the cache: else memory is read twice.
constexpr std::size_t kCachedBytes = std::size_t{4} << 20;
constexpr double kUncached = 1.3;

void collect(const Group& group, std::size_t depth, std::vector<std::vector<const Group*>>& by_depth) {
  if (by_depth.size() <= depth) by_depth.resize(depth + 1);
  by_depth[depth].push_back(&group);
  if (group.innermost()) return;
  for (const Group& child : group.children) collect(child, depth + 1, by_depth);
}

/// Adds up what every part of the machine has to do.
class Account {
 public:
  Account(std::size_t bytes, std::size_t chunks, const LinkModel& model)
      : bytes_(static_cast<double>(bytes)),
        chunks_(static_cast<double>(std::max<std::size_t>(chunks, 1))),
        model_(model) {
    cost_.tiers_s.assign(model.tiers.size(), 0);
    cost_.work_s = model.chunk_s * chunks_;
  }

  void reduce_in_memory(double seconds) {
    cost_.memory_s = seconds;
    first_chunk_ = bytes_ / chunks_ / model_.memory.bytes_per_s;
  }

  /// @param link_bytes  over the tier's link
  /// @param rate        part of the link's bandwidth that can be used
  /// @param rounds      that wait for each other, of each chunk
  /// @param messages    that a rank sends or receives, of each chunk
  /// @param added       bytes that a rank reduces
  void exchange(std::size_t tier, double link_bytes, double rate, double rounds, double messages,
                double added) {
    const LinkFigures& link = model_.tiers[tier];
    const double seconds = link_bytes / (link.bytes_per_s * rate);
    cost_.tiers_s[tier] += seconds;
    first_chunk_ += seconds / chunks_;
    cost_.latency_s += rounds * link.latency_s;
    cost_.work_s += added / model_.memory.bytes_per_s + messages * chunks_ * model_.message_s;
  }

  Cost total() && {
    double longest = cost_.memory_s;
    for (const double seconds : cost_.tiers_s) longest = std::max(longest, seconds);
    // A rank works while messages are under way, but not for nothing.
    const double overlapped = std::max(longest, cost_.work_s) + 0.1 * std::min(longest, cost_.work_s) +
                              first_chunk_ + cost_.latency_s;
    const double in_turn =
        std::accumulate(cost_.tiers_s.begin(), cost_.tiers_s.end(), cost_.memory_s + cost_.work_s) +
        cost_.latency_s;
    cost_.seconds = model_.overlap * overlapped + (1 - model_.overlap) * in_turn;
    return std::move(cost_);
  }

 private:
  const double bytes_;
  const double chunks_;
  const LinkModel& model_;
  double first_chunk_ = 0;
  Cost cost_;
};

/// A ring over all ranks in the order of their numbers, by every link; or, for small messages, recursive
/// doubling.
Cost plain_mpi(double bytes, const ClusterShape& cluster, const LinkModel& model) {
  std::size_t slowest = 0;
  double rate = 0;
  double latency = 0;
  for (std::size_t t = 0; t < model.tiers.size(); ++t) {
    const LinkFigures& link = model.tiers[t];
    const double one = link.bytes_per_s * link.to_one_peer * link.by_one_rank;
    if (rate == 0 || one < rate) {
      rate = one;
      slowest = t;
    }
    latency = std::max(latency, link.latency_s);
  }
  const auto all = static_cast<double>(cluster.ranks);
  const double ring = 2 * (all - 1) / all * bytes / rate;
  const double ring_latency = 2 * (all - 1) * latency;
  const double steps = rounds_of_halving(cluster.ranks);
  const double doubling = steps * bytes * static_cast<double>(cluster.ranks_a_host) / rate;
  const bool short_way = steps * latency + doubling < ring + ring_latency;
  Cost cost;
  cost.tiers_s.assign(model.tiers.size(), 0);
  cost.tiers_s[slowest] = short_way ? doubling : ring;
  cost.latency_s = short_way ? steps * latency : ring_latency;
  cost.seconds = cost.tiers_s[slowest] + cost.latency_s;
  return cost;
}

Cost one_group(const Plan& plan, double bytes, double memory, const LinkModel& model) {
  Cost cost;
  cost.memory_s = memory;
  const auto chunks = static_cast<double>(std::max<std::size_t>(plan.chunking.chunks, 1));
  cost.seconds = plan.plain_mpi
                     ? 2 * memory + 4 * model.memory.latency_s
                     : memory + bytes / chunks / model.memory.bytes_per_s + chunks * model.memory.latency_s;
  return cost;
}

}  // namespace

std::size_t leaders_rounds(Algorithm algorithm, const ClusterShape& cluster) {
  std::size_t rounds = 0;
  for (const TierFacts& tier : cluster.tiers) rounds += radices(algorithm, tier.groups).size();
  return rounds;
}

double rounds_of_halving(std::size_t n) { return static_cast<double>(std::bit_width(n - 1)); }

ClusterShape ClusterShape::of(const Topology& topology) {
  std::vector<std::vector<const Group*>> by_depth;
  collect(topology.root(), 0, by_depth);
  ClusterShape cluster;
  cluster.hosts = by_depth.back().size();
  cluster.least_ranks_a_host = by_depth.back().front()->ranks.size();
  for (const Group* host : by_depth.back()) {
    cluster.ranks_a_host = std::max(cluster.ranks_a_host, host->ranks.size());
    cluster.least_ranks_a_host = std::min(cluster.least_ranks_a_host, host->ranks.size());
  }
  cluster.ranks = topology.root().ranks.size();
  cluster.in_pairs = pairwise_distances(nesting_of(topology)).has_value();
  for (std::size_t depth = by_depth.size() - 1; depth-- > 0;) {
    TierFacts facts;
    for (const Group* group : by_depth[depth]) {
      facts.groups = std::max(facts.groups, group->children.size());
      std::size_t most = 1;
      std::size_t least = cluster.hosts;
      for (const Group& child : group->children) {
        const std::size_t hosts = innermost_groups(child).size();
        facts.ranks_below = std::max(facts.ranks_below, child.ranks.size());
        most = std::max(most, hosts);
        least = std::min(least, hosts);
      }
      facts.hosts_below = std::max(facts.hosts_below, most);
      facts.segments = std::max(facts.segments, (most + least - 1) / least);
    }
    cluster.tiers.push_back(facts);
  }
  return cluster;
}

namespace {

/// A ring over all GPUs, host by host, as NCCL makes it: every link carries everything once each way.
Cost by_nccl(double bytes, const ClusterShape& cluster, const LinkModel& model) {
  const auto all = static_cast<double>(cluster.ranks);
  Cost cost;
  cost.tiers_s.assign(model.tiers.size(), 0);
  cost.memory_s = 2 * (all - 1) / all * bytes / model.devices.bytes_per_s;
  double slowest = cost.memory_s;
  cost.latency_s = model.devices.latency_s;
  for (std::size_t t = 0; t < model.tiers.size(); ++t) {
    const LinkFigures& link = model.tiers[t];
    cost.tiers_s[t] = 2 * (all - 1) / all * bytes / (link.bytes_per_s * link.to_one_peer);
    slowest = std::max(slowest, cost.tiers_s[t]);
    // Small messages go along a tree.
    cost.latency_s += 2 * rounds_of_halving(cluster.tiers[t].groups) * link.latency_s;
  }
  cost.seconds = slowest + cost.latency_s;
  return cost;
}

/// What gets a rank's elements to where the tiers reduce them, and back.
double device_seconds(const Plan& plan, double bytes, const ClusterShape& cluster, const LinkModel& model) {
  const auto ranks = static_cast<double>(cluster.ranks_a_host);
  const double copies = bytes / model.copies.bytes_per_s;
  if (plan.device == DevicePath::kStaged) return copies + 2 * model.copies.latency_s;
  if (plan.device == DevicePath::kNcclTiers) {
    const auto operations = static_cast<double>(2 * (cluster.tiers.size() + 1));
    return 2 * (ranks - 1) / ranks * bytes / model.devices.bytes_per_s + operations * model.devices.latency_s;
  }
  if (plan.device == DevicePath::kIpc) {
    // Input, reduction and result wait for the ranks of the host one after the other.
    const double chunks = static_cast<double>(std::max<std::size_t>(plan.chunking.chunks, 1));
    const double work = bytes / model.ipc.bytes_per_s;
    const double alone = work + work / chunks + 3 * model.ipc.latency_s + chunks * model.chunk_s;
    if (cluster.tiers.empty()) return alone;
    return std::max(alone, copies / ranks) + 2 * model.copies.latency_s;
  }
  const double inside = 2 * (ranks - 1) / ranks * bytes / model.devices.bytes_per_s;
  return std::max(inside, copies / ranks) + 2 * model.devices.latency_s + 2 * model.copies.latency_s;
}

Cost on_host(const Plan& plan, const AllreduceShape& shape, const ClusterShape& cluster,
             const LinkModel& model);

}  // namespace

Cost cost_of(const Plan& plan, const AllreduceShape& shape, const ClusterShape& cluster,
             const LinkModel& model) {
  const auto bytes = static_cast<double>(shape.bytes());
  if (plan.device == DevicePath::kNccl) return by_nccl(bytes, cluster, model);
  if (plan.device == DevicePath::kIpc && cluster.tiers.empty()) {
    Cost cost;
    cost.seconds = cost.memory_s = device_seconds(plan, bytes, cluster, model);
    return cost;
  }
  Cost cost = on_host(plan, shape, cluster, model);
  if (shape.memory == 0) return cost;
  // Several chunks are under way: what takes longest counts, and the rest as a part of it.
  const double device = device_seconds(plan, bytes, cluster, model);
  cost.seconds = std::max(cost.seconds, device) + 0.1 * std::min(cost.seconds, device);
  return cost;
}

namespace {

Cost on_host(const Plan& plan, const AllreduceShape& shape, const ClusterShape& cluster,
             const LinkModel& model) {
  const auto bytes = static_cast<double>(shape.bytes());
  const std::size_t staged = plan.chunking.chunk_elements * shape.width * plan.chunking.slots;
  const bool cached = staged <= kCachedBytes || plan.chunking.chunks <= 1;
  const double memory = (cached ? 1 : kUncached) * bytes / model.memory.bytes_per_s + model.memory.latency_s;
  const std::size_t tiers = cluster.tiers.size();
  if (tiers == 0) return one_group(plan, bytes, memory, model);
  if (plan.plain_mpi) return plain_mpi(bytes, cluster, model);
  const double widening = shape.rounds_each_step ? 2 : 1;
  Account account(shape.bytes(), plan.chunking.chunks, model);
  // NCCL's part of it is not the processor's.
  if (plan.shape != Shape::kRanks && plan.device == DevicePath::kStaged) account.reduce_in_memory(memory);
  if (plan.shape == Shape::kTiers) {
    for (std::size_t t = 0; t < tiers; ++t) {
      const auto groups = static_cast<double>(cluster.tiers[t].groups);
      const double shares = 2 * (groups - 1) / groups * bytes;
      const double one_peer = model.tiers[t].to_one_peer;
      const auto segments = static_cast<double>(cluster.tiers[t].segments);
      if (plan.device == DevicePath::kNcclTiers) {
        account.exchange(t, shares, one_peer, 2 * rounds_of_halving(cluster.tiers[t].groups), 0, 0);
        continue;
      }
      switch (t < plan.algorithms.size() ? plan.algorithms[t] : Algorithm::kDirect) {
        case Algorithm::kDirect:
          account.exchange(t, shares, 1, 2, 2 * (groups - 1) * segments, shares / 2);
          break;
        case Algorithm::kOneShot:
          account.exchange(t, (groups - 1) * bytes, 1, 1, (groups - 1) * segments, (groups - 1) * bytes);
          break;
        case Algorithm::kDoubling:
        case Algorithm::kMultiplying:
        case Algorithm::kRecursive: {
          const RecursiveCost cost = recursive_cost(plan.algorithms[t], cluster.tiers[t].groups, widening);
          account.exchange(t, cost.bytes * bytes, one_peer, cost.rounds, cost.messages * segments,
                           cost.added * bytes);
          break;
        }
        case Algorithm::kStar:
        case Algorithm::kRing:
        case Algorithm::kMpi:
          account.exchange(t, shares, one_peer, 2 * (groups - 1), 2 * (groups - 1) * segments, shares / 2);
          break;
      }
    }
    return std::move(account).total();
  }
  // One tier over hosts or ranks: what each of the topology's links has to carry.
  const bool by_ranks = plan.shape == Shape::kRanks;
  const std::size_t count = by_ranks ? cluster.ranks : cluster.hosts;
  const auto members = static_cast<double>(count);
  const Algorithm algorithm = plan.algorithms.empty() ? Algorithm::kDirect : plan.algorithms.front();
  if (!by_ranks && algorithm != Algorithm::kOneShot && nests(algorithm)) {
    // The sums of a tier's groups cross its links and those below.
    double above = 0;
    for (std::size_t t = tiers; t-- > 0;) {
      const TierFacts& facts = cluster.tiers[t];
      const RecursiveCost cost = recursive_cost(algorithm, facts.groups, widening);
      // Where one group has more hosts than another, those of the small one send to several.
      const auto uneven = static_cast<double>(facts.segments);
      above += cost.bytes * uneven;
      account.exchange(t, above * static_cast<double>(facts.hosts_below) * bytes, model.tiers[t].to_one_peer,
                       cost.rounds, cost.messages * uneven, cost.added * bytes);
    }
    return std::move(account).total();
  }
  const RecursiveCost halving = recursive_cost(algorithm, count, widening);
  for (std::size_t t = 0; t < tiers; ++t) {
    const TierFacts& facts = cluster.tiers[t];
    const LinkFigures& link = model.tiers[t];
    const auto inside = static_cast<double>(by_ranks ? facts.ranks_below : facts.hosts_below);
    const double outside = std::max(1.0, members - inside);
    const bool top = t + 1 == tiers;
    const double rounds = top ? 1.0 : 0.0;
    switch (algorithm) {
      case Algorithm::kOneShot:
        account.exchange(t, inside * outside * bytes, 1, rounds, top ? members - 1 : 0,
                         top ? (members - 1) * bytes : 0);
        break;
      case Algorithm::kStar:
        account.exchange(t, 2 * outside * bytes, 1, 2 * rounds, top ? 2 * (members - 1) : 0,
                         top ? (members - 1) * bytes : 0);
        break;
      case Algorithm::kRing:
        account.exchange(t, 2 * (members - 1) / members * bytes, link.to_one_peer * link.by_one_rank,
                         2 * (members - 1) * rounds, top ? 2 * (members - 1) : 0, top ? bytes : 0);
        break;
      case Algorithm::kDoubling:
      case Algorithm::kMultiplying:
        account.exchange(t, halving.bytes * inside * bytes, link.to_one_peer, halving.rounds * rounds,
                         top ? halving.messages : 0, top ? halving.added * bytes : 0);
        break;
      case Algorithm::kRecursive:
        account.exchange(t, halving.bytes * inside * outside / std::max(1.0, members - 1) * bytes,
                         link.to_one_peer, halving.rounds * rounds, top ? halving.messages : 0,
                         top ? halving.added * bytes : 0);
        break;
      default:
        account.exchange(t, 2 * inside * outside / members * bytes, 1, 2 * rounds,
                         top ? 2 * (members - 1) : 0, top ? bytes : 0);
    }
  }
  return std::move(account).total();
}

}  // namespace
}  // namespace ddl
