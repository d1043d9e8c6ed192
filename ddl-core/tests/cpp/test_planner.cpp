// What the planner chooses on described clusters, and how it corrects itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "described_cluster.hpp"
#include "plan/planner.hpp"
#include "transport/shared_segment.hpp"

namespace ddl {
namespace {

/// Host links of 1 Gbit/s, uplinks of 200 Mbit/s.
LinkModel slow_uplinks(std::size_t tiers) {
  LinkModel model = LinkModel::assumed(tiers);
  for (LinkFigures& link : model.tiers) link = {100e-6, 119e6};
  if (tiers > 1) model.tiers.back() = {100e-6, 24e6};
  return model;
}

/// 50 GB/s, 10 us.
LinkModel fast_links(std::size_t tiers) {
  LinkModel model = LinkModel::assumed(tiers);
  for (LinkFigures& link : model.tiers) link = {10e-6, 50e9};
  model.memory = {100e-9, 1e9};
  return model;
}

AllreduceShape floats(std::size_t bytes) {
  AllreduceShape shape;
  shape.elements = bytes / 4;
  return shape;
}

bool uses(const std::vector<Plan>& plans, Algorithm algorithm) {
  return std::any_of(plans.begin(), plans.end(), [&](const Plan& plan) {
    return std::find(plan.algorithms.begin(), plan.algorithms.end(), algorithm) != plan.algorithms.end();
  });
}

bool has_plain(const std::vector<Plan>& plans) {
  return std::any_of(plans.begin(), plans.end(), [](const Plan& plan) { return plan.plain_mpi; });
}

TEST(LinkModel, TextComesBack) {
  LinkModel model = slow_uplinks(2);
  LinkModel read = LinkModel::assumed(2);
  ASSERT_TRUE(read.from_text(model.to_text(), 2));
  EXPECT_EQ(read.to_text(), model.to_text());
  EXPECT_DOUBLE_EQ(read.tiers[1].bytes_per_s, 24e6);
}

TEST(LinkModel, OtherTextsAreRefusedAndChangeNothing) {
  const std::string good = slow_uplinks(2).to_text();
  for (const std::string& text :
       {std::string(), std::string("ddl-links 2\n"), good + "tier 1 2\n", good.substr(0, good.size() / 2),
        std::string("ddl-links 1\nmemory 1e-6 nan\ntier 1 2\ntier 1 2\n"),
        std::string("ddl-links 1\nmemory 1e-6 1e9\ntier -1 1e9\ntier 0 1e9\n"),
        std::string("ddl-links 1\nmemory 1e-6 1e9\ntier 0 0\ntier 0 1e9\n"), std::string(4000, 'x')}) {
    LinkModel model = LinkModel::assumed(2);
    const std::string before = model.to_text();
    EXPECT_FALSE(model.from_text(text, 2)) << text;
    EXPECT_EQ(model.to_text(), before);
  }
  LinkModel one = LinkModel::assumed(1);
  EXPECT_FALSE(one.from_text(good, 1)) << "of a cluster with other tiers";
}

TEST(Planner, LargeMessagesGoByTheTiersInSmallChunks) {
  Planner planner(cluster({2, 2, 2, 2}, {2, 2, 2}), {}, slow_uplinks(2));
  const Plan plan = planner.choose(floats(64 << 20));
  EXPECT_EQ(plan.shape, Shape::kTiers);
  EXPECT_EQ(plan.algorithms, (std::vector{Algorithm::kDirect, Algorithm::kDirect}));
  // Two groups exchange all of it once each way: 64 MiB over 24 MB/s.
  EXPECT_NEAR(plan.predicted_s, (64 << 20) / 24e6, 0.15);
  EXPECT_LE(plan.chunking.chunk_elements * 4, 128u << 10);
  ASSERT_EQ(plan.windows.size(), 2u);
  EXPECT_LT(plan.windows[1], plan.windows[0]) << "the uplink is shared";
}

TEST(Planner, SmallMessagesTakeOneRoundOrAFew) {
  Planner planner(cluster({1, 1, 1, 1}), {}, slow_uplinks(1));
  const Plan plan = planner.choose(floats(64));
  EXPECT_TRUE(plan.algorithms.front() == Algorithm::kOneShot ||
              plan.algorithms.front() == Algorithm::kDoubling);
  EXPECT_EQ(plan.chunking.chunks, 1u);
  // With many hosts a message to each costs more than log2 rounds.
  LinkModel fast = LinkModel::assumed(1);
  fast.tiers[0] = {5e-6, 10e9};
  Planner wide(cluster(std::vector<int>(64, 1)), {}, fast);
  EXPECT_EQ(wide.choose(floats(64)).algorithms.front(), Algorithm::kDoubling);
}

TEST(Planner, CandidatesKeepTheOrderUnlessItDoesNotMatter) {
  const Topology topology = cluster({2, 2, 2, 2, 2});
  Planner run(topology, {}, slow_uplinks(1));
  EXPECT_FALSE(uses(run.candidates(floats(1 << 20)), Algorithm::kRing));
  EXPECT_TRUE(uses(run.candidates(floats(1 << 14)), Algorithm::kRecursive)) << "whatever their number";
  EXPECT_FALSE(has_plain(run.candidates(floats(1 << 20))));
  AllreduceShape integers = floats(1 << 20);
  integers.order_free = true;
  EXPECT_TRUE(uses(run.candidates(integers), Algorithm::kRing));
  EXPECT_TRUE(has_plain(run.candidates(integers)));
  Planner off(topology, {'p', Determinism::kOff}, slow_uplinks(1));
  EXPECT_TRUE(uses(off.candidates(floats(1 << 20)), Algorithm::kRing));
  AllreduceShape halves = floats(1 << 10);
  halves.rounds_each_step = true;
  for (const Plan& plan : Planner(cluster({1, 1, 1, 1}), {}, slow_uplinks(1)).candidates(halves)) {
    if (plan.shape != Shape::kLeaders) continue;
    EXPECT_FALSE(plan.algorithms[0] == Algorithm::kDoubling || plan.algorithms[0] == Algorithm::kRecursive)
        << "leaders would round in every step";
  }
}

TEST(Planner, PlacementIsSeenByNobodyWhenAskedFor) {
  Planner planner(cluster({2, 2}), {'p', Determinism::kPlacement}, slow_uplinks(1));
  for (const std::size_t bytes : {64u, 1u << 20}) {
    const auto plans = planner.candidates(floats(bytes));
    ASSERT_EQ(plans.size(), 1u);
    EXPECT_EQ(plans[0].shape, Shape::kRanks);
    EXPECT_EQ(plans[0].algorithms, std::vector{Algorithm::kDirect});
  }
}

TEST(Planner, ReducedFormatsAreExchangedDirectly) {
  Planner planner(cluster({2, 2, 2, 2}, {2, 2, 2}), {}, slow_uplinks(2));
  for (const std::size_t bytes : {64u, 1u << 16, 1u << 24}) {
    AllreduceShape shape = floats(bytes);
    shape.encoded = true;
    for (const Plan& plan : planner.candidates(shape)) {
      EXPECT_FALSE(plan.plain_mpi);
      for (const Algorithm algorithm : plan.algorithms) EXPECT_EQ(algorithm, Algorithm::kDirect);
    }
  }
}

TEST(Planner, ChunksCoverTheBufferAndFitTheStage) {
  for (const auto& hosts : std::vector<std::vector<int>>{{2}, {8}, {3, 2}, {1, 1}, {16, 16}}) {
    for (const std::size_t width : {2u, 4u, 8u}) {
      for (const std::size_t count : {0u, 1u, 1000u, 1u << 20, (1u << 20) + 1, 50u << 20}) {
        for (const char mode : std::string("pbnrmc")) {
          Planner planner(cluster(hosts), {mode, Determinism::kRun}, slow_uplinks(hosts.size() > 1 ? 1 : 0));
          AllreduceShape shape;
          shape.elements = count;
          shape.width = width;
          const Plan plan = planner.choose(shape);
          const Chunking& cut = plan.chunking;
          EXPECT_LE(cut.chunk_elements * width, cut.slot_bytes);
          EXPECT_LE(cut.slots * cut.slot_bytes, kStageBytes);
          EXPECT_LE(cut.slots, kMaxSlots);
          EXPECT_GE(cut.chunks * cut.chunk_elements, count);
          EXPECT_TRUE(count == 0 || (cut.chunks - 1) * cut.chunk_elements < count);
          EXPECT_TRUE(cut.chunks <= 1 || cut.chunk_elements % 256 == 0);
        }
      }
    }
  }
}

TEST(Planner, LeadersExchangeAMessageAsAWhole) {
  // Where links are fast and start slowly they are the best way for all that is small.
  const Planner planner(cluster({2, 2, 2, 2}, {2, 2, 2}), {}, fast_links(2));
  for (const std::size_t bytes : {1000U, 65'540U, 80'056U}) {
    const auto plans = planner.candidates(floats(bytes));
    EXPECT_EQ(plans.front().shape, Shape::kLeaders) << bytes;
    for (const Plan& plan : plans) {
      if (plan.shape != Shape::kLeaders) continue;
      EXPECT_EQ(plan.chunking.chunks, 1U) << plan.to_text();
    }
  }
}

TEST(Planner, SmallMessagesAreTriedInEveryWay) {
  Planner planner(cluster({2, 2, 2, 2}, {2, 2, 2}), {}, slow_uplinks(2));
  const AllreduceShape shape = floats(4096);
  const auto plans = planner.candidates(shape);
  const auto star_of = [](const std::vector<Plan>& of) {
    std::size_t i = 0;
    while (i < of.size() && of[i].algorithms.front() != Algorithm::kStar) ++i;
    return i;
  };
  const std::size_t star = star_of(plans);
  ASSERT_LT(star, plans.size());
  ASSERT_GT(star, 0u);
  EXPECT_EQ(plans[star].shape, Shape::kLeaders);
  EXPECT_FALSE(uses(planner.candidates(floats(64 << 10)), Algorithm::kStar)) << "too many bytes for one";
  // Times are as predicted, but the star's, which is predicted to be slow, is fast more often than not.
  Plan plan;
  for (int i = 0; i < 100; ++i) {
    plan = planner.choose(shape);
    EXPECT_EQ(plan.chunking.chunks, 1u);
    const double disturbed = i % 3 == 0 ? 10 : 0.01;
    planner.learn(shape, plan.candidate, plan.predicted_s * (plan.candidate == star ? disturbed : 1.0));
  }
  EXPECT_EQ(plan.candidate, star);
  const Planner wide(cluster(std::vector<int>(kFewHosts + 1, 1)), {}, slow_uplinks(1));
  for (const Plan& one : wide.candidates(shape)) EXPECT_NE(one.shape, Shape::kLeaders) << "too many hosts";
}

TEST(Planner, GoodPredictionsAreKept) {
  Planner planner(cluster({2, 2, 2, 2}), {}, slow_uplinks(1));
  const AllreduceShape shape = floats(1 << 20);
  const std::string chosen = planner.choose(shape).to_text();
  for (int i = 0; i < 100; ++i) {
    const Plan plan = planner.choose(shape);
    EXPECT_EQ(plan.to_text(), chosen);
    planner.learn(shape, plan.candidate, plan.predicted_s * (i % 2 == 0 ? 0.9 : 1.15));
  }
}

TEST(Planner, WrongPredictionsAreCorrectedByWhatWasMeasured) {
  // Two planners stand for two ranks: what they are told is the same, so what they choose must be.
  const Topology topology = cluster({2, 2, 2, 2});
  Planner one(topology, {}, slow_uplinks(1));
  Planner other(topology, {}, slow_uplinks(1));
  const AllreduceShape shape = floats(1 << 20);
  const std::size_t best = one.candidates(shape).size() - 1;
  ASSERT_GE(best, 2u);
  std::set<std::size_t> tried;
  std::size_t last = 0;
  for (int i = 0; i < 60; ++i) {
    const Plan plan = one.choose(shape);
    ASSERT_EQ(other.choose(shape).candidate, plan.candidate);
    tried.insert(plan.candidate);
    last = plan.candidate;
    // The links are three times as slow as the model believes, and the least promising candidate does best.
    const double seconds = plan.predicted_s * (plan.candidate == best ? 1.0 : 3.0);
    one.learn(shape, plan.candidate, seconds);
    other.learn(shape, plan.candidate, seconds);
  }
  EXPECT_EQ(tried.size(), best + 1);
  EXPECT_EQ(last, best);
}

TEST(Planner, WhatWasFasterWhenTriedThanInEarnestIsGivenUp) {
  Planner planner(cluster({2, 2, 2, 2}, {2, 2, 2}), {}, slow_uplinks(2));
  const AllreduceShape shape = floats(4096);
  const auto plans = planner.candidates(shape);
  ASSERT_GE(plans.size(), 4u);
  const std::size_t flattered = plans.size() - 1;
  const std::size_t steady = plans.size() - 2;
  // A burst that the links have saved up carries the first calls of a candidate, but not more.
  std::vector<int> calls(plans.size(), 0);
  std::size_t last = 0;
  int of_flattered = 0;
  for (int i = 0; i < 900; ++i) {
    const Plan plan = planner.choose(shape);
    last = plan.candidate;
    of_flattered += last == flattered ? 1 : 0;
    const bool burst = ++calls[last] <= 8;
    const double seconds = last == flattered ? (burst ? 0.8e-3 : 2e-3) : last == steady ? 1e-3 : 3e-3;
    planner.learn(shape, plan.candidate, seconds);
  }
  EXPECT_EQ(last, steady);
  EXPECT_LT(of_flattered, 100);
}

TEST(Planner, WhatWasDisturbedWhenTriedIsTriedAgain) {
  Planner planner(cluster({2, 2, 2, 2}, {2, 2, 2}), {}, slow_uplinks(2));
  const AllreduceShape shape = floats(4096);
  const std::size_t best = planner.candidates(shape).size() - 1;
  std::size_t last = 0;
  int tried = 0;
  for (int i = 0; i < 2000; ++i) {
    const Plan plan = planner.choose(shape);
    last = plan.candidate;
    tried += last != best ? 1 : 0;
    planner.learn(shape, plan.candidate, last == best && i > 500 ? 1e-3 : last == best ? 9e-3 : 2e-3);
  }
  EXPECT_EQ(last, best);
  EXPECT_LT(tried, 1200);
}

TEST(Planner, ExplainsWhenSomethingIsDecided) {
  Planner planner(cluster({1, 1, 1}), {}, slow_uplinks(1));
  const AllreduceShape shape = floats(1 << 16);
  EXPECT_EQ(planner.explain(shape), "");
  for (int i = 0; i < 2; ++i) {
    const Plan plan = planner.choose(shape);
    planner.learn(shape, plan.candidate, plan.predicted_s);
  }
  const std::string said = planner.explain(shape);
  EXPECT_NE(said.find("65536 bytes: "), std::string::npos) << said;
  EXPECT_NE(said.find("predicted "), std::string::npos);
  EXPECT_NE(said.find("measured "), std::string::npos);
  EXPECT_NE(said.find("instead of "), std::string::npos);
  EXPECT_EQ(planner.explain(shape), "") << "nothing new";
}

}  // namespace
}  // namespace ddl
