// What is kept of plans: what is used, within a bound of memory.
#include <gtest/gtest.h>

#include "described_cluster.hpp"
#include "engine/plan_cache.hpp"

namespace ddl {
namespace {

Plan by(Algorithm algorithm) {
  Plan plan;
  plan.algorithms = {algorithm};
  return plan;
}

TEST(PlanCache, GivesTheSamePlanAgain) {
  const Topology topology = cluster({2, 2, 2});
  PlanCache cache(topology, 3, false);
  const ChunkPlan& first = cache.chunk_plan(by(Algorithm::kDirect), 1000, 16);
  EXPECT_EQ(&cache.chunk_plan(by(Algorithm::kDirect), 1000, 16), &first);
  EXPECT_NE(&cache.chunk_plan(by(Algorithm::kDirect), 1001, 16), &first);
  EXPECT_NE(&cache.chunk_plan(by(Algorithm::kDirect), 1000, 16, 2), &first);
  EXPECT_NE(&cache.chunk_plan(by(Algorithm::kRecursive), 1000, 16, -1, false),
            &cache.chunk_plan(by(Algorithm::kRecursive), 1000, 16, -1, true));
}

TEST(PlanCache, StaysWithinItsBoundOnAThousandHosts) {
  const Topology topology = cluster(std::vector<int>(1000, 1));
  PlanCache cache(topology, 17, false);
  const ChunkPlan* const often = &cache.chunk_plan(by(Algorithm::kDirect), 999'999, 16);
  std::size_t most = 0;
  for (std::size_t count = 1; count < 400; ++count) {
    cache.trim();
    EXPECT_EQ(&cache.chunk_plan(by(Algorithm::kDirect), 999'999, 16), often) << "in use all the time";
    cache.chunk_plan(by(Algorithm::kDirect), 1'000'000 + count, 16);
    most = std::max(most, cache.memory());
  }
  EXPECT_GT(most, std::size_t{7} << 20) << "else the bound was not reached";
  EXPECT_LT(most, std::size_t{9} << 20);
}

TEST(PlanCache, PreparedPlansKeepTheirRounds) {
  const Topology topology = cluster({1, 1, 1, 1});
  PlanCache cache(topology, 0, false);
  AllreduceShape shape;
  for (std::uint64_t id = 1; id < 10'000; ++id) {
    cache.trim();
    shape.elements = id;
    Plan plan = by(Algorithm::kDirect);
    plan.id = id;
    plan.chunking = {id, 1, 1, 1 << 20};
    const PlanCache::Prepared& ready = cache.prepared(plan, shape, WireFormat::kFull);
    ASSERT_NE(ready.last, nullptr);
    EXPECT_EQ(ready.whole, ready.last);
    EXPECT_EQ(&cache.prepared(plan, shape, WireFormat::kFull), &ready);
  }
  EXPECT_LT(cache.memory(), std::size_t{9} << 20);
}

}  // namespace
}  // namespace ddl
