// Plans of clusters of 4 to 4096 hosts, of all ranks in one process: right results, and as many messages,
// bytes on every tier, and bytes of memory as stated.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "described_cluster.hpp"
#include "plan/planner.hpp"
#include "simulated_cluster.hpp"

namespace ddl {
namespace {

/// Hosts in racks, which may differ in size.
struct Described {
  std::string name;
  std::vector<int> racks;  ///< hosts of each; one rack: flat
  int ranks_a_host = 1;

  std::size_t hosts() const {
    return static_cast<std::size_t>(std::accumulate(racks.begin(), racks.end(), 0));
  }

  Topology topology() const {
    std::vector<Host> hosts;
    Branch root{"", {}};
    int rank = 0;
    for (const int size : racks) {
      Branch rack{"rack " + std::to_string(root.children.size()), {}};
      for (int h = 0; h < size; ++h) {
        Host& host = hosts.emplace_back();
        host.name = host.key = "h" + std::to_string(hosts.size());
        for (int i = 0; i < ranks_a_host; ++i) host.ranks.push_back(rank++);
        host.numa_nodes.assign(host.ranks.size(), 0);
        host.packages.assign(host.ranks.size(), 0);
        rack.children.push_back({host.name, host.ranks});
      }
      root.children.push_back(std::move(rack));
    }
    return Topology(std::move(hosts), std::move(root), {}, "description", {});
  }
};

/// What a rank sends at most in a tier of groups with so many children: the logarithm of them.
double most_messages(Algorithm algorithm, std::size_t groups) {
  if (groups < 2) return 0;
  return algorithm == Algorithm::kDirect ? 2 * (static_cast<double>(groups) - 1)
                                         : recursive_cost(algorithm, groups, 1).messages;
}

/// Messages of the whole that all children of a tier's group send together, in units of the whole chunk.
double most_traffic(Algorithm algorithm, std::size_t groups) {
  if (groups < 2) return 0;
  const auto g = static_cast<double>(groups);
  // Of a number that is no power of two, those beyond it give all they have, and get the result.
  const double folded = g - static_cast<double>(std::bit_floor(groups));
  return 2 * (g - 1) + (algorithm == Algorithm::kDirect ? 0 : 2 * folded);
}

void check(const Described& cluster, Algorithm algorithm, std::size_t count) {
  SCOPED_TRACE(cluster.name + ", " + name_of(algorithm));
  const Topology topology = cluster.topology();
  const std::size_t tiers = topology.tiers().size() - 1;
  const std::vector<Algorithm> algorithms(tiers, algorithm);
  const Traffic traffic = simulate(topology, count, 1, Shape::kTiers, algorithms);
  if (testing::Test::HasFailure()) return;

  const auto widest = static_cast<std::size_t>(*std::max_element(cluster.racks.begin(), cluster.racks.end()));
  const bool even = std::all_of(cluster.racks.begin(), cluster.racks.end(),
                                [&](int hosts) { return hosts == cluster.racks[0]; });
  const bool racked = cluster.racks.size() > 1;
  // Tiers from the inside: hosts of a rack (or all hosts), racks.
  double messages = most_messages(algorithm, widest);
  std::vector<double> elements{0};
  for (const int hosts : cluster.racks) {
    elements[0] += most_traffic(algorithm, static_cast<std::size_t>(hosts)) * static_cast<double>(count);
  }
  if (racked) {
    messages += most_messages(algorithm, cluster.racks.size());
    elements.push_back(most_traffic(algorithm, cluster.racks.size()) * static_cast<double>(count));
  }
  ASSERT_EQ(tiers, elements.size());
  for (std::size_t t = 0; t < tiers; ++t) {
    const auto moved = static_cast<double>(traffic.elements_by_tier.at(t));
    EXPECT_LE(moved, elements[t]) << "tier " << t;
    // Each byte crosses once in each direction: never more, and not less.
    if (algorithm == Algorithm::kDirect ||
        (even && std::has_single_bit(widest) && std::has_single_bit(cluster.racks.size()))) {
      EXPECT_EQ(moved, elements[t]) << "tier " << t;
    }
  }
  for (std::size_t r = 0; r < traffic.messages.size(); ++r) {
    // Racks of unequal size cut a chunk at different places: a rank may own parts of several segments, each
    // of which has its own owners in the other racks. There are fewer segments than ranks in all racks.
    if (even) {
      EXPECT_LE(static_cast<double>(traffic.messages[r]), messages) << "rank " << r;
    }
    // A list of owners for each segment, and what is sent and received in each round.
    const double owners = static_cast<double>(std::max(widest, cluster.racks.size()));
    const auto segments = static_cast<double>(traffic.plan_segments[r]);
    const double rounds = algorithm == Algorithm::kDirect ? owners : 2 * std::log2(owners) + 4;
    const double memory = 1024 + 16.0 * cluster.ranks_a_host + segments * (128 + 4 * owners + 400 * rounds);
    EXPECT_LE(static_cast<double>(traffic.plan_bytes[r]), memory) << "rank " << r;
  }
}

std::vector<int> racks(std::size_t number, int hosts) { return std::vector<int>(number, hosts); }

/// One rank less on one host must not cost the others messages: what the README promises holds for any hosts.
TEST(WholeCluster, HostsOfAnySizesKeepTheNumberOfMessages) {
  const auto many = [](std::size_t hosts, int ranks, int more) {
    std::vector<int> all(hosts, ranks);
    if (more > 0) all.push_back(more);
    return all;
  };
  std::vector<int> to_16(16);
  std::iota(to_16.begin(), to_16.end(), 1);
  std::vector<int> from_5_to_12(64);
  for (std::size_t i = 0; i < 64; ++i) from_5_to_12[i] = 5 + static_cast<int>(i % 8);
  for (const std::vector<int>& hosts : {many(16, 8, 0), many(15, 8, 1), many(15, 2, 1), many(63, 8, 7),
                                        from_5_to_12, to_16, std::vector<int>{3, 2, 2, 1}}) {
    const Topology topology = cluster(hosts);
    const auto groups = static_cast<double>(hosts.size());
    for (const std::size_t count : {std::size_t{1} << 14, std::size_t{1} << 18}) {
      for (const Algorithm algorithm :
           {Algorithm::kDirect, Algorithm::kRecursive, Algorithm::kDoubling, Algorithm::kMultiplying}) {
        SCOPED_TRACE(std::to_string(hosts.size()) + " hosts of " + std::to_string(hosts.front()) + " to " +
                     std::to_string(hosts.back()) + ", " + name_of(algorithm) + ", " + std::to_string(count));
        const double most = algorithm == Algorithm::kDirect ? 2 * (groups - 1) : 2 * std::log2(groups) + 4;
        const std::size_t owners = static_cast<std::size_t>(*std::min_element(hosts.begin(), hosts.end()));
        for (int rank = 0; rank < topology.size(); ++rank) {
          const ChunkPlan plan = plan_allreduce_chunk(topology.root(), rank, count, 16, {algorithm});
          ASSERT_LE(static_cast<double>(messages_sent(plan.up[0]) + messages_sent(plan.down[0])), most)
              << "rank " << rank;
          if (algorithm != Algorithm::kDirect) continue;
          for (const Transfer& send : plan.up[0].empty() ? std::vector<Transfer>{} : plan.up[0][0].sends) {
            ASSERT_GE(send.range.size() + 32, count / owners / hosts.size()) << "a message is cut smaller";
          }
        }
      }
    }
  }
}

/// All ranks of a host add up, however few own the sums in the tiers.
TEST(WholeCluster, EveryRankOfALargeHostAddsUp) {
  const Topology topology = cluster({8, 3, 1});
  constexpr std::size_t count = 9600;
  for (int rank = 0; rank < topology.size(); ++rank) {
    const Exchange exchange = plan_exchange(topology.root(), rank, count, 16);
    const std::vector<Interval>& added = exchange.added.empty() ? exchange.local : exchange.added;
    std::size_t at = 0;
    for (const Interval& one : added) {
      EXPECT_EQ(one.begin, at);
      EXPECT_LE(one.size(), count / added.size() + 16);
      at = one.end;
    }
    EXPECT_EQ(at, count);
    std::size_t owned = 0;
    for (const Interval& one : exchange.local) owned += one.size();
    EXPECT_EQ(owned, count);
    EXPECT_EQ(exchange.tiers[0].size(), rank == 7 || rank == 10 || rank == 11 ? 1U : 0U)
        << "the last rank of each host is the owner, rank " << rank;
  }
}

/// Racks of different sizes: what goes to one rank is one message, although it is of several segments.
TEST(WholeCluster, SegmentsForOneRankAreOneMessage) {
  const Topology topology = Described{"", {3, 1, 1}, 1}.topology();
  const int alone = topology.size() - 1;
  for (int rank = 0; rank < topology.size(); ++rank) {
    const ChunkPlan plan = plan_allreduce_chunk(topology.root(), rank, 6000, 16, {});
    for (const auto& tier : plan.up) {
      for (const Round& round : tier) {
        std::set<int> peers;
        for (const Transfer& send : round.sends) peers.insert(send.peer);
        EXPECT_EQ(messages_sent({round}), peers.size()) << "rank " << rank;
      }
    }
  }
  EXPECT_GT(plan_exchange(topology.root(), alone, 6000, 16).tiers.back().size(), 1U)
      << "else there is nothing to join";
}

TEST(WholeCluster, AFewHosts) {
  for (const Algorithm algorithm : {Algorithm::kDirect, Algorithm::kRecursive}) {
    check({"4 flat", {4}, 2}, algorithm, 240);
    check({"7 flat", {7}, 2}, algorithm, 420);
    check({"2 x 2", racks(2, 2), 3}, algorithm, 240);
    check({"5 and 2 and 1", {5, 2, 1}, 2}, algorithm, 700);
    check({"61 flat", {61}, 2}, algorithm, 61 * 4);
    check({"8 x 8", racks(8, 8), 2}, algorithm, 1024);
    check({"uneven", {17, 5, 9, 2, 31}, 1}, algorithm, 1000);
  }
}

TEST(WholeCluster, HundredsOfHosts) {
  check({"256 flat", {256}, 1}, Algorithm::kRecursive, 1024);
  check({"509 flat", {509}, 1}, Algorithm::kRecursive, 1018);
  check({"16 x 16", racks(16, 16), 2}, Algorithm::kRecursive, 1024);
  check({"16 x 16", racks(16, 16), 1}, Algorithm::kDirect, 1024);
  check({"13 x 19", racks(13, 19), 1}, Algorithm::kRecursive, 13 * 19 * 4);
  check({"uneven", {64, 3, 40, 17, 64, 31, 1}, 1}, Algorithm::kRecursive, 1000);
}

TEST(WholeCluster, ThousandsOfHosts) {
  check({"4096 flat", {4096}, 1}, Algorithm::kRecursive, 512);
  check({"4093 flat", {4093}, 1}, Algorithm::kRecursive, 512);
  check({"64 x 64", racks(64, 64), 1}, Algorithm::kRecursive, 1024);
  check({"32 x 32", racks(32, 32), 1}, Algorithm::kDirect, 1024);
}

}  // namespace
}  // namespace ddl
