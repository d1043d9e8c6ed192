// The plans of all ranks of a described cluster, executed in one process: what is sent must be what is
// received, and the result must be the sum.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "plan/exchange.hpp"

namespace ddl {
namespace {

/// hosts[i] ranks on host i; dims as in -mode, or empty.
Topology cluster(const std::vector<int>& hosts, const std::vector<int>& dims = {}) {
  std::vector<Placement> placements;
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    for (int i = 0; i < hosts[h]; ++i) placements.push_back({"h" + std::to_string(h), std::to_string(h)});
  }
  return Topology::build(placements, dims);
}

struct Traffic {
  std::vector<std::size_t> messages;  ///< sent by each rank, both directions
  std::map<std::size_t, std::size_t> elements_by_tier;
};

/// Executes reduce-scatter and all-gather on 64-bit integers; EXPECTs that every rank ends with the sum.
Traffic simulate(const Topology& topology, std::size_t count, std::size_t grain) {
  const auto size = static_cast<std::size_t>(topology.size());
  std::vector<Exchange> plans;
  std::vector<std::vector<std::int64_t>> stage(size, std::vector<std::int64_t>(count));
  std::vector<std::int64_t> expected(count, 0);
  Traffic traffic{std::vector<std::size_t>(size, 0), {}};
  for (std::size_t r = 0; r < size; ++r) {
    plans.push_back(plan_exchange(topology, static_cast<int>(r), count, grain));
    for (std::size_t i = 0; i < count; ++i) {
      stage[r][i] = static_cast<std::int64_t>((r + 1) * 1000003 + i * 7);
      expected[i] += stage[r][i];
    }
  }
  const auto groups = innermost_groups(topology);
  const auto input = stage;
  for (const Group* group : groups) {
    for (std::size_t m = 0; m < group->ranks.size(); ++m) {
      const auto owner = static_cast<std::size_t>(group->ranks[m]);
      EXPECT_EQ(plans[owner].local.size(), group->ranks.size());
      const Interval own = plans[owner].local[m];
      for (std::size_t i = own.begin; i < own.end; ++i) {
        stage[owner][i] = 0;
        for (const int rank : group->ranks) stage[owner][i] += input[static_cast<std::size_t>(rank)][i];
      }
    }
  }
  const std::size_t tiers = plans[0].tiers.size();
  // A message: from, to, what. Both sides must plan the same set.
  using Message = std::tuple<int, int, std::size_t, std::size_t>;
  for (std::size_t t = 0; t < tiers; ++t) {
    const auto before = stage;
    std::multiset<Message> sent;
    std::multiset<Message> received;
    for (std::size_t r = 0; r < size; ++r) {
      for (const Segment& segment : plans[r].tiers[t]) {
        EXPECT_EQ(segment.owners[segment.mine], static_cast<int>(r));
        const Interval part = segment.part(segment.mine, grain);
        for (std::size_t i = 0; i < segment.owners.size(); ++i) {
          if (i == segment.mine) continue;
          const Interval theirs = segment.part(i, grain);
          if (!theirs.empty()) {
            sent.emplace(static_cast<int>(r), segment.owners[i], theirs.begin, theirs.end);
            ++traffic.messages[r];
            traffic.elements_by_tier[t] += theirs.size();
          }
          if (part.empty()) continue;
          received.emplace(segment.owners[i], static_cast<int>(r), part.begin, part.end);
          for (std::size_t e = part.begin; e < part.end; ++e) {
            stage[r][e] += before[static_cast<std::size_t>(segment.owners[i])][e];
          }
        }
      }
    }
    EXPECT_EQ(sent, received);
  }
  for (std::size_t t = tiers; t-- > 0;) {
    const auto before = stage;
    for (std::size_t r = 0; r < size; ++r) {
      for (const Segment& segment : plans[r].tiers[t]) {
        for (std::size_t i = 0; i < segment.owners.size(); ++i) {
          if (i == segment.mine) continue;
          const Interval theirs = segment.part(i, grain);
          if (!segment.part(segment.mine, grain).empty()) ++traffic.messages[r];
          for (std::size_t e = theirs.begin; e < theirs.end; ++e) {
            stage[r][e] = before[static_cast<std::size_t>(segment.owners[i])][e];
          }
        }
      }
    }
  }
  for (const Group* group : groups) {
    std::vector<std::int64_t> gathered(count, -1);
    for (std::size_t m = 0; m < group->ranks.size(); ++m) {
      const auto owner = static_cast<std::size_t>(group->ranks[m]);
      const Interval own = plans[owner].local[m];
      for (std::size_t i = own.begin; i < own.end; ++i) gathered[i] = stage[owner][i];
    }
    EXPECT_EQ(gathered, expected);
  }
  return traffic;
}

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
  EXPECT_EQ(traffic.elements_by_tier.at(1), std::size_t{1} << 12);
}

TEST(Exchange, MessagesGrowWithTheTiersNotWithTheRanks) {
  // 64 ranks as 4 x 4 x 4: (4-1) messages in each outer tier and direction.
  const Traffic traffic = simulate(cluster(std::vector<int>(16, 4), {4, 4, 4}), 1 << 12, 1);
  for (const std::size_t messages : traffic.messages) EXPECT_EQ(messages, 2u * (3 + 3));
}

TEST(Exchange, WorkIsSharedEvenly) {
  const Topology topology = cluster({4, 4, 4, 4});
  for (int rank = 0; rank < 16; ++rank) {
    const Exchange plan = plan_exchange(topology, rank, 1 << 14, 16);
    ASSERT_EQ(plan.tiers.size(), 1u);
    ASSERT_EQ(plan.tiers[0].size(), 1u);
    EXPECT_EQ(plan.tiers[0][0].part(plan.tiers[0][0].mine, 16).size(), std::size_t{1} << 10);
    EXPECT_EQ(plan.scratch(0), std::size_t{3} << 10);
  }
}

TEST(Chunks, CoverTheBufferAndFitTheStage) {
  for (const auto& hosts : std::vector<std::vector<int>>{{1}, {2}, {8}, {3, 2}, {16, 16}}) {
    for (std::size_t count : {1u, 1000u, 1u << 20, (1u << 20) + 1}) {
      for (int type = 0; type < kTypeCount; ++type) {
        const Chunking chunking = plan_chunks(cluster(hosts), count, static_cast<DDL_Type>(type));
        EXPECT_LE(chunking.chunk_elements * size_of(static_cast<DDL_Type>(type)), kMaxChunkBytes);
        EXPECT_GE(chunking.chunks * chunking.chunk_elements, count);
        EXPECT_LT((chunking.chunks - 1) * chunking.chunk_elements, count);
      }
    }
  }
  EXPECT_EQ(plan_chunks(cluster({2}), 0, DDL_TYPE_FLOAT).chunks, 0u);
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

}  // namespace
}  // namespace ddl
