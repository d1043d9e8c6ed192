// The plans of all ranks of a described cluster, executed in one process: what is sent must be what is
// received, and the result must be the sum.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "plan/chunk_plan.hpp"

namespace ddl {

struct Traffic {
  std::vector<std::size_t> messages;  ///< sent by each rank, both directions
  std::map<std::size_t, std::size_t> elements_by_tier;
  std::vector<std::size_t> plan_bytes;     ///< memory_of() each rank's plan
  std::vector<std::size_t> plan_segments;  ///< of each rank, in all tiers
};

/// The chunk and the scratch memory of all ranks.
struct World {
  std::vector<ChunkPlan> plans;
  std::vector<std::vector<std::int64_t>> chunk;
  std::vector<std::vector<std::int64_t>> scratch;

  std::int64_t& at(std::size_t rank, Interval range, std::size_t place, std::size_t i) {
    return place == Transfer::kInPlace ? chunk[rank][range.begin + i] : scratch[rank][place + i];
  }
};

/// One round of all ranks at once: what is sent must be what is received.
inline void run_round(World& world, std::size_t tier, std::size_t round, bool up, Traffic& traffic) {
  using Key = std::pair<int, int>;
  std::map<Key, std::vector<std::pair<Interval, std::vector<std::int64_t>>>> sent;
  const auto rounds = [&](std::size_t r) -> const std::vector<Round>& {
    return up ? world.plans[r].up[tier] : world.plans[r].down[tier];
  };
  for (std::size_t r = 0; r < world.plans.size(); ++r) {
    if (rounds(r).size() <= round) continue;
    for (const Transfer& send : rounds(r)[round].sends) {
      std::vector<std::int64_t> values;
      for (std::size_t i = 0; i < send.range.size(); ++i)
        values.push_back(world.at(r, send.range, Transfer::kInPlace, i));
      traffic.elements_by_tier[tier] += send.range.size();
      ++traffic.messages[r];
      sent[{static_cast<int>(r), send.peer}].emplace_back(send.range, std::move(values));
    }
  }
  std::map<Key, std::size_t> taken;
  for (std::size_t r = 0; r < world.plans.size(); ++r) {
    if (rounds(r).size() <= round) continue;
    for (const Transfer& receive : rounds(r)[round].receives) {
      const Key key{receive.peer, static_cast<int>(r)};
      const std::size_t number = taken[key]++;
      ASSERT_LT(number, sent[key].size()) << "nobody sends what rank " << r << " waits for";
      const auto& [range, values] = sent[key][number];
      ASSERT_EQ(range, receive.range);
      for (std::size_t i = 0; i < values.size(); ++i) world.at(r, range, receive.scratch, i) = values[i];
    }
  }
  for (const auto& [key, messages] : sent)
    EXPECT_EQ(messages.size(), taken[key]) << "sent to nobody who waits";
  for (std::size_t r = 0; r < world.plans.size(); ++r) {
    if (rounds(r).size() <= round) continue;
    for (const Reduction& reduction : rounds(r)[round].reductions) {
      for (std::size_t i = 0; i < reduction.range.size(); ++i) {
        std::int64_t sum = 0;
        for (const std::size_t operand : reduction.operands) sum += world.at(r, reduction.range, operand, i);
        world.at(r, reduction.range, reduction.into, i) = sum;
      }
    }
  }
}

inline std::int64_t input_of(std::size_t rank, std::size_t i) {
  return static_cast<std::int64_t>((rank + 1) * 1000003 + i * 7);
}

/// Executes a plan on all ranks; EXPECTs that every rank (or `root`) ends with the sum.
inline Traffic simulate(const Topology& topology, std::size_t count, std::size_t grain,
                        Shape shape = Shape::kTiers, const std::vector<Algorithm>& algorithms = {},
                        int root = -1) {
  const auto size = static_cast<std::size_t>(topology.size());
  const Group tree = shaped_tree(topology, shape);
  const Nesting nesting = nesting_of(topology);
  World world;
  Traffic traffic{std::vector<std::size_t>(size, 0), {}, {}, {}};
  std::vector<std::int64_t> expected(count, 0);
  for (std::size_t r = 0; r < size; ++r) {
    const int rank = static_cast<int>(r);
    world.plans.push_back(root < 0 ? plan_allreduce_chunk(tree, rank, count, grain, algorithms,
                                                          shape == Shape::kHosts ? &nesting : nullptr)
                                   : plan_reduce_chunk(tree, rank, root, count, grain));
    traffic.plan_bytes.push_back(memory_of(world.plans.back()));
    traffic.plan_segments.push_back(0);
    for (const auto& tier : world.plans.back().exchange.tiers) traffic.plan_segments.back() += tier.size();
    world.chunk.emplace_back(count);
    world.scratch.emplace_back(world.plans.back().scratch);
    for (std::size_t i = 0; i < count; ++i) expected[i] += world.chunk[r][i] = input_of(r, i);
  }
  for (const Group* group : innermost_groups(tree)) {
    for (std::size_t m = 0; m < group->ranks.size(); ++m) {
      const auto owner = static_cast<std::size_t>(group->ranks[m]);
      EXPECT_EQ(world.plans[owner].exchange.local.size(), group->ranks.size());
      const Interval own = world.plans[owner].exchange.local[m];
      for (std::size_t i = own.begin; i < own.end; ++i) {
        world.chunk[owner][i] = 0;
        for (const int rank : group->ranks)
          world.chunk[owner][i] += input_of(static_cast<std::size_t>(rank), i);
      }
    }
  }
  const std::size_t tiers = world.plans[0].up.size();
  for (std::size_t t = 0; t < 2 * tiers; ++t) {
    const bool up = t < tiers;
    const std::size_t tier = up ? t : 2 * tiers - 1 - t;
    std::size_t rounds = 0;
    for (const ChunkPlan& plan : world.plans) {
      rounds = std::max(rounds, (up ? plan.up : plan.down)[tier].size());
    }
    for (std::size_t round = 0; round < rounds; ++round) {
      run_round(world, tier, round, up, traffic);
      if (testing::Test::HasFatalFailure()) return traffic;
    }
  }
  for (const Group* group : innermost_groups(tree)) {
    const bool wanted = root < 0 || std::binary_search(group->ranks.begin(), group->ranks.end(), root);
    if (!wanted) continue;
    std::vector<std::int64_t> gathered(count, -1);
    for (std::size_t m = 0; m < group->ranks.size(); ++m) {
      const auto owner = static_cast<std::size_t>(group->ranks[m]);
      const Interval own = world.plans[owner].exchange.local[m];
      for (std::size_t i = own.begin; i < own.end; ++i) gathered[i] = world.chunk[owner][i];
    }
    EXPECT_EQ(gathered, expected);
  }
  return traffic;
}

}  // namespace ddl
