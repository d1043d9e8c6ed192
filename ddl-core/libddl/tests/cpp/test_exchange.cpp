// The plans of all ranks of a described cluster, executed in one process: what is sent must be what is
// received, and the result must be the sum.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <random>
#include <string>

#include "described_cluster.hpp"
#include "plan/chunk_plan.hpp"
#include "plan/planner.hpp"
#include "simulated_cluster.hpp"

namespace ddl {
namespace {

constexpr Algorithm kOwn[] = {Algorithm::kDirect,      Algorithm::kOneShot,   Algorithm::kDoubling,
                              Algorithm::kMultiplying, Algorithm::kRecursive, Algorithm::kRing};

TEST(Exchange, Parts) {
  // Cover the whole without gaps, whatever the sizes.
  for (std::size_t size : {0u, 1u, 5u, 16u, 17u, 1000u, 1009u}) {
    for (std::size_t parts = 1; parts < 9; ++parts) {
      for (std::size_t grain : {1u, 16u}) {
        std::size_t at = 3;
        for (std::size_t i = 0; i < parts; ++i) {
          const Interval part = part_of({3, 3 + size}, parts, i, grain);
          EXPECT_EQ(part.begin, at);
          EXPECT_LE(part.begin, part.end);
          EXPECT_LE(part.size(), size / parts + 2 * grain);
          at = part.end;
        }
        EXPECT_EQ(at, 3 + size);
      }
    }
  }
}

TEST(Exchange, EvenHosts) { simulate(cluster({2, 2, 2, 2}), 1000, 16); }

TEST(Exchange, UnevenHosts) {
  for (const auto& hosts :
       std::vector<std::vector<int>>{{3, 2}, {1, 3}, {3, 2, 2, 1}, {1, 1, 5}, {7, 4, 1}}) {
    for (std::size_t count : {1u, 15u, 16u, 17u, 127u, 1000u, 4099u}) simulate(cluster(hosts), count, 16);
  }
}

TEST(Exchange, RandomTrees) {
  std::mt19937 random(11);
  for (int i = 0; i < 150; ++i) {
    std::vector<int> hosts(1 + random() % 6);
    for (int& ranks : hosts) ranks = static_cast<int>(1 + random() % 4);
    std::vector<int> dims;
    if (random() % 2 == 0) {
      const int a = static_cast<int>(1 + random() % 3);
      for (int& ranks : hosts) ranks = a;
      // Three hosts a rack, and a last rack with what remains, is legitimate.
      dims = {a, static_cast<int>(1 + random() % 3), static_cast<int>(1 + random() % 2), 1};
    }
    simulate(cluster(hosts, dims), 1 + random() % 700, random() % 2 == 0 ? 1 : 16);
  }
}

TEST(Exchange, EveryByteCrossesTheOuterTierOncePerGroupAndDirection) {
  // Two racks of two hosts of two ranks: each rack sends half the buffer up, which is what two groups must
  // exchange.
  const Traffic traffic = simulate(cluster({2, 2, 2, 2}, {2, 2, 2}), 1 << 12, 1);
  // And the same down again.
  EXPECT_EQ(traffic.elements_by_tier.at(1), std::size_t{2} << 12);
}

TEST(Exchange, MessagesGrowWithTheTiersNotWithTheRanks) {
  // 64 ranks as 4 x 4 x 4: (4-1) messages in each outer tier and direction.
  const Traffic traffic = simulate(cluster(std::vector<int>(16, 4), {4, 4, 4}), 1 << 12, 1);
  for (const std::size_t messages : traffic.messages) EXPECT_EQ(messages, 2u * (3 + 3));
}

TEST(Exchange, WorkIsSharedEvenly) {
  const Topology topology = cluster({4, 4, 4, 4});
  for (int rank = 0; rank < 16; ++rank) {
    const Exchange plan = plan_exchange(topology.root(), rank, 1 << 14, 16);
    ASSERT_EQ(plan.tiers.size(), 1u);
    ASSERT_EQ(plan.tiers[0].size(), 1u);
    EXPECT_EQ(plan.tiers[0][0].part(plan.tiers[0][0].mine, 16).size(), std::size_t{1} << 10);
    EXPECT_EQ(plan_allreduce_chunk(topology.root(), rank, 1 << 14, 16, {}).scratch, std::size_t{3} << 10);
  }
}

TEST(Schedule, EveryAlgorithmSumsForAnyNumberOfHosts) {
  for (const Algorithm algorithm : kOwn) {
    for (int hosts = 1; hosts <= 9; ++hosts) {
      SCOPED_TRACE(std::string(name_of(algorithm)) + ", hosts: " + std::to_string(hosts));
      for (std::size_t count : {1u, 5u, 64u, 1000u}) {
        simulate(cluster(std::vector<int>(static_cast<std::size_t>(hosts), 2)), count, 16, Shape::kTiers,
                 {algorithm});
      }
    }
  }
}

TEST(Schedule, EveryAlgorithmSumsOnUnevenHostsAndInRacks) {
  for (const Algorithm algorithm : kOwn) {
    SCOPED_TRACE(name_of(algorithm));
    for (const auto& hosts : std::vector<std::vector<int>>{{3, 2}, {3, 2, 2, 1}, {1, 1, 5}}) {
      simulate(cluster(hosts), 1000, 16, Shape::kTiers, {algorithm});
      simulate(cluster(hosts), 1000, 16, Shape::kHosts, {algorithm});
      simulate(cluster(hosts), 1000, 16, Shape::kRanks, {algorithm});
    }
    // Full exchanges at the top; below it the parts have to be shared out and gathered again.
    simulate(cluster(std::vector<int>(12, 2), {2, 4}), 1000, 16, Shape::kTiers,
             {Algorithm::kDirect, algorithm});
    simulate(cluster(std::vector<int>(12, 2), {2, 4}), 1000, 16, Shape::kHosts, {algorithm});
  }
  simulate(cluster(std::vector<int>(12, 2), {2, 4}), 1000, 16, Shape::kTiers,
           {Algorithm::kRing, Algorithm::kRecursive});
}

TEST(Schedule, EveryCandidateOfThePlannerSums) {
  const std::vector<int> many(70, 1);
  for (const Topology& topology : {cluster(many), cluster(many, {1, 16, 5}), cluster({2, 2, 1, 2}, {}),
                                   cluster(std::vector<int>(12, 2), {2, 5, 3})}) {
    Planner planner(topology, {'p', Determinism::kOff}, LinkModel::assumed(topology.tiers().size() - 1));
    for (const std::size_t elements : {std::size_t{10}, std::size_t{3000}}) {
      AllreduceShape shape;
      shape.elements = elements;
      for (const Plan& plan : planner.candidates(shape)) {
        SCOPED_TRACE(plan.to_text());
        if (plan.plain_mpi || plan.shape == Shape::kLeaders) continue;
        // One rank of a host exchanges what is small.
        for (const std::size_t grain : {std::size_t{16}, elements})
          simulate(topology, elements, grain, plan.shape, plan.algorithms);
      }
    }
  }
}

TEST(Schedule, RoundsAndMessagesAreThoseOfTheCostModel) {
  const Topology topology = cluster(std::vector<int>(16, 1));
  const auto plan = [&](Algorithm algorithm) {
    return plan_allreduce_chunk(topology.root(), 3, 1600, 1, {algorithm});
  };
  EXPECT_EQ(plan(Algorithm::kDirect).up[0].size(), 1u);
  EXPECT_EQ(messages_sent(plan(Algorithm::kDirect).up[0]), 15u);
  EXPECT_EQ(plan(Algorithm::kOneShot).up[0].size(), 1u);
  EXPECT_TRUE(plan(Algorithm::kOneShot).down[0].empty());
  EXPECT_EQ(plan(Algorithm::kDoubling).up[0].size(), 4u);
  EXPECT_EQ(messages_sent(plan(Algorithm::kDoubling).up[0]), 4u);
  EXPECT_EQ(plan(Algorithm::kMultiplying).up[0].size(), 2u);
  EXPECT_EQ(messages_sent(plan(Algorithm::kMultiplying).up[0]), 6u);
  EXPECT_EQ(plan(Algorithm::kRecursive).up[0].size(), 4u);
  EXPECT_EQ(plan(Algorithm::kRecursive).down[0].size(), 4u);
  EXPECT_EQ(plan(Algorithm::kRing).up[0].size(), 15u);
  EXPECT_EQ(messages_sent(plan(Algorithm::kRing).down[0]), 15u);
}

TEST(Reduce, TheRootAloneEndsWithTheSum) {
  for (const auto& hosts : std::vector<std::vector<int>>{{4}, {3, 2, 2, 1}, {1, 1, 5}}) {
    const Topology topology = cluster(hosts);
    for (int root = 0; root < topology.size(); ++root) simulate(topology, 999, 16, Shape::kTiers, {}, root);
  }
  const Topology racks = cluster(std::vector<int>(8, 2), {2, 2, 2, 2});
  for (int root = 0; root < racks.size(); ++root) {
    const Traffic traffic = simulate(racks, 1 << 12, 1, Shape::kTiers, {}, root);
    // Half of the buffer crosses to the other side on the way up, and half of it to the root's on the way
    // down.
    EXPECT_EQ(traffic.elements_by_tier.at(2), (std::size_t{1} << 12) + (std::size_t{1} << 11));
  }
}

TEST(Relays, ReachEveryHostOnceFromEveryRoot) {
  for (const bool chain : {false, true}) {
    for (const Topology& topology : {cluster({1}), cluster({3, 2, 2, 1}),
                                     cluster(std::vector<int>(12, 2), {2, 3, 2, 2}), cluster({4, 4, 4})}) {
      for (int root = 0; root < topology.size(); ++root) {
        std::map<int, int> parents;
        for (int rank = 0; rank < topology.size(); ++rank) {
          const RelayNode node = relay_node(topology.root(), rank, root, chain);
          EXPECT_EQ(topology.host_of(node.relay), topology.host_of(rank));
          if (node.relay != rank) continue;
          for (const int child : node.children) {
            EXPECT_EQ(parents.count(child), 0u);
            parents[child] = rank;
          }
          EXPECT_LE(node.children.size(), chain ? 1u : 4u);
        }
        EXPECT_EQ(parents.size() + 1, topology.hosts().size());
        EXPECT_EQ(parents.count(root), 0u);
        for (int rank = 0; rank < topology.size(); ++rank) {
          const RelayNode node = relay_node(topology.root(), rank, root, chain);
          if (node.relay != rank || rank == root) continue;
          EXPECT_EQ(node.parent, parents.at(rank));
        }
      }
    }
  }
}

TEST(BinomialTree, ReachesEveryGroupOnce) {
  for (int groups = 1; groups < 20; ++groups) {
    for (int root = 0; root < groups; ++root) {
      std::vector<int> parents(static_cast<std::size_t>(groups), -2);
      parents[static_cast<std::size_t>(root)] = -1;
      for (int self = 0; self < groups; ++self) {
        for (const int child : binomial_node(groups, root, self).children) {
          EXPECT_EQ(parents[static_cast<std::size_t>(child)], -2);
          parents[static_cast<std::size_t>(child)] = self;
        }
      }
      for (int self = 0; self < groups; ++self) {
        EXPECT_EQ(binomial_node(groups, root, self).parent, parents[static_cast<std::size_t>(self)]);
      }
    }
  }
}

TEST(Exchange, OrderOfOwners) {
  // Of two hosts of two ranks the first ranks own the first half, shared by the hosts.
  EXPECT_EQ(order_of_owners(cluster({2, 2}).root()), (std::vector{0, 2, 1, 3}));
  EXPECT_EQ(order_of_owners(cluster({3}).root()), (std::vector{0, 1, 2}));
  EXPECT_EQ(order_of_owners(cluster({1}).root()), (std::vector{0}));
  for (const auto& hosts : std::vector<std::vector<int>>{{2, 1}, {3, 2, 2, 1}, {1, 2, 2}}) {
    EXPECT_FALSE(order_of_owners(cluster(hosts).root()));
  }
  EXPECT_FALSE(order_of_owners(cluster(std::vector<int>(5, 2), {2, 2, 3}).root())) << "uneven racks";
  for (const Topology& topology :
       {cluster(std::vector<int>(12, 2), {2, 3, 2, 2}), cluster(std::vector<int>(7, 1)),
        cluster(std::vector<int>(6, 4), {4, 3, 2})}) {
    const auto order = order_of_owners(topology.root());
    ASSERT_TRUE(order);
    const auto size = static_cast<std::size_t>(topology.size());
    for (const std::size_t each : {1u, 3u, 16u, 1000u}) {
      for (std::size_t k = 0; k < size; ++k) {
        const Exchange plan = plan_exchange(topology.root(), (*order)[k], size * each, 1);
        Interval own = plan.tiers.empty() ? plan.local[0] : Interval{};
        for (const auto& tier : plan.tiers) {
          ASSERT_EQ(tier.size(), 1u) << "one segment, as all groups are alike";
          own = tier[0].part(tier[0].mine, 1);
        }
        EXPECT_EQ(own, (Interval{k * each, (k + 1) * each}));
      }
    }
  }
}

TEST(Exchange, NeighboursAreNearInTheOrderOfAdditions) {
  using Order = std::vector<std::size_t>;
  EXPECT_EQ(near_first(1), Order{0});
  EXPECT_EQ(near_first(2), (Order{0, 1}));
  // ReduceKernel adds up the first and third of four, and then the second and fourth.
  EXPECT_EQ(near_first(4), (Order{0, 2, 1, 3}));
  EXPECT_EQ(near_first(8), (Order{0, 4, 2, 6, 1, 5, 3, 7}));
  // It joins two pairs of neighbours.
  EXPECT_EQ(near_first(6), (Order{0, 2, 3, 1, 4, 5}));
  for (std::size_t count = 1; count < 200; ++count) {
    const Order order = near_first(count);
    ASSERT_EQ(order.size(), count);
    const Order places = places_near_first(count);
    for (std::size_t place = 0; place < count; ++place) EXPECT_EQ(places.at(order[place]), place);
    Order all = order;
    std::sort(all.begin(), all.end());
    for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(all[i], i);
  }
}

/// Elements that each of some racks sends to others, where all hosts are one tier as nobody knows the racks.
std::vector<std::size_t> sent_upwards(Algorithm algorithm, std::size_t racks, std::size_t hosts,
                                      std::size_t count) {
  const Topology topology = cluster(std::vector<int>(racks * hosts, 1));
  std::vector<std::size_t> sent(racks, 0);
  for (int rank = 0; rank < topology.size(); ++rank) {
    const ChunkPlan plan = plan_allreduce_chunk(topology.root(), rank, count, 1, {algorithm});
    const std::size_t rack = static_cast<std::size_t>(rank) / hosts;
    for (const auto* const rounds : {&plan.up[0], &plan.down[0]}) {
      for (const Round& round : *rounds) {
        for (const Transfer& send : round.sends) {
          if (static_cast<std::size_t>(send.peer) / hosts != rack) sent[rack] += send.range.size();
        }
      }
    }
  }
  return sent;
}

TEST(Exchange, HalvingSendsLittleBetweenRacksThatNobodyKnows) {
  // As much as if they were known: each rack sends 2 (R-1)/R of the buffer. With the farthest first it would
  // be twice as much.
  EXPECT_EQ(sent_upwards(Algorithm::kRecursive, 4, 2, 8000), std::vector<std::size_t>(4, 12'000));
  EXPECT_EQ(sent_upwards(Algorithm::kRecursive, 4, 4, 16'000), std::vector<std::size_t>(4, 24'000));
  EXPECT_EQ(sent_upwards(Algorithm::kRecursive, 2, 8, 16'000), std::vector<std::size_t>(2, 16'000));
  // Of six hosts those of the second and third rack are joined first.
  for (const std::size_t sent : sent_upwards(Algorithm::kRecursive, 3, 2, 6000)) EXPECT_LE(sent, 12'000U);
}

TEST(Exchange, ARingSendsToTheNextOne) {
  for (const int hosts : {3, 6, 8}) {
    const Topology topology = cluster(std::vector<int>(static_cast<std::size_t>(hosts), 1));
    for (int rank = 0; rank < hosts; ++rank) {
      const ChunkPlan plan = plan_allreduce_chunk(topology.root(), rank, 480, 1, {Algorithm::kRing});
      for (const auto* const rounds : {&plan.up[0], &plan.down[0]}) {
        for (const Round& round : *rounds) {
          for (const Transfer& send : round.sends) EXPECT_EQ(send.peer, (rank + 1) % hosts);
        }
      }
    }
  }
}

Nesting leaves(std::size_t count) { return Nesting{std::vector<Nesting>(count)}; }

TEST(Exchange, PairsAddUpAsTheGroupsNest) {
  using Distances = std::vector<std::size_t>;
  EXPECT_EQ(pairwise_distances(leaves(8)), (Distances{1, 2, 4})) << "neighbours first";
  // Pairs within each rack come first.
  EXPECT_EQ(pairwise_distances({{leaves(2), leaves(2), leaves(2), leaves(2)}}), (Distances{1, 2, 4}));
  EXPECT_EQ(pairwise_distances({{leaves(4), leaves(4)}}), (Distances{1, 2, 4}));
  EXPECT_EQ(pairwise_distances({{leaves(1), leaves(1)}}), (Distances{1}));
  EXPECT_EQ(pairwise_distances(Nesting{}), Distances{});
  EXPECT_FALSE(pairwise_distances(leaves(3)));
  EXPECT_FALSE(pairwise_distances({{leaves(2), leaves(1)}}));
  EXPECT_FALSE(pairwise_distances({{leaves(2), leaves(2), leaves(2)}}));
}

}  // namespace
}  // namespace ddl
