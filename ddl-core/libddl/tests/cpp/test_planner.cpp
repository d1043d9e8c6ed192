// What the planner chooses on described clusters, and how it corrects itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <compare>
#include <random>
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
        std::string("ddl-links 1\ntier 1e-6 1e9\ntier 1e-6 1e9\n"),
        std::string("ddl-links 1\nmemory 1e-6 1e9\ntier -1 1e9\ntier 0 1e9\n"),
        std::string("ddl-links 1\nmemory 1e-6 1e9\ntier 0 0\ntier 0 1e9\n"),
        std::string("ddl-links 1\nmemory 1e-6 1e9\ntier 0 1\ntier 0 1e9\n"),
        std::string("ddl-links 1\nmemory 1e-6 1e9\ntier 0 1e15\ntier 0 1e9\n"),
        std::string("ddl-links 1\nmemory 1e-6 1e9\ntier 100 1e9\ntier 0 1e9\n"),
        std::string("ddl-links 1\nmemory 1e-6 1e9\nlink 0 1e9\ntier 0 1e9\n"), std::string(4000, 'x')}) {
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
  EXPECT_EQ(wide.choose(floats(64)).algorithms.front(), Algorithm::kMultiplying);
  EXPECT_FALSE(uses(wide.candidates(floats(1 << 20)), Algorithm::kMultiplying)) << "it multiplies the bytes";
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
    EXPECT_FALSE(plan.shape == Shape::kLeaders && plan.algorithms[0] == Algorithm::kRecursive)
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
          EXPECT_EQ(cut.chunks == 0, count == 0);
          EXPECT_TRUE(count == 0 || (cut.chunks - 1) * cut.chunk_elements < count);
          EXPECT_TRUE(cut.chunks <= 1 || cut.chunk_elements % 256 == 0);
        }
      }
    }
  }
}

TEST(Planner, ChunksOfAnAlgorithmThatIsAskedForFillTheirSlots) {
  for (const char mode : std::string("brcm")) {
    Planner planner(cluster({2, 2, 2, 2}), {mode, Determinism::kRun}, slow_uplinks(1));
    for (const std::size_t width : {2U, 4U, 8U}) {
      AllreduceShape shape;
      shape.width = width;
      shape.elements = 8 << 20;
      const Chunking cut = planner.choose(shape).chunking;
      EXPECT_EQ(cut.chunk_elements * width, cut.slot_bytes) << mode << ' ' << width;
      EXPECT_LE(cut.slot_bytes, kMaxChunkBytes) << mode << ' ' << width;
    }
  }
}

TEST(Planner, OnlyTiersHaveAWindowEach) {
  const Planner planner(cluster({2, 2, 2, 2}, {2, 2, 2}), {'p', Determinism::kOff}, slow_uplinks(2));
  for (const std::size_t bytes : {64U, 1U << 20}) {
    for (const Plan& plan : planner.candidates(floats(bytes))) {
      if (plan.plain_mpi) continue;
      EXPECT_EQ(plan.windows.size(), plan.shape == Shape::kTiers ? 2U : 1U) << plan.to_text();
      EXPECT_EQ(plan.windows.back(), window_bytes(2)) << "hosts share the uplink";
    }
  }
}

TEST(Planner, AmongMoreGroupsThereAreMoreWaysAtTheTop) {
  using Ways = std::set<Algorithm>;
  const auto ways = [](std::size_t hosts, std::size_t bytes) {
    AllreduceShape shape = floats(bytes);
    shape.order_free = true;
    shape.one_buffer = false;
    Ways found;
    const Planner planner(cluster(std::vector<int>(hosts, 2)), {}, slow_uplinks(1));
    for (const Plan& plan : planner.candidates(shape)) {
      if (plan.shape == Shape::kTiers) found.insert(plan.algorithms.back());
    }
    return found;
  };
  Ways all = {Algorithm::kDirect, Algorithm::kDoubling};
  EXPECT_EQ(ways(2, 1 << 18), all) << "the others are the direct exchange";
  all.insert({Algorithm::kRecursive, Algorithm::kRing});
  EXPECT_EQ(ways(3, 1 << 18), all);
  EXPECT_EQ(ways(7, 1 << 16), all);
  all.insert(Algorithm::kMultiplying);
  EXPECT_EQ(ways(8, 1 << 16), all);
}

TEST(Planner, WhereThereAreRacksHostsMayExchangeAsIfThereWereNone) {
  const auto hosts_alone = [](const Topology& topology) {
    AllreduceShape shape = floats(64 << 10);
    shape.order_free = true;
    const Planner planner(topology, {}, fast_links(topology.tiers().size() - 1));
    const auto plans = planner.candidates(shape);
    return std::any_of(plans.begin(), plans.end(), [](const Plan& plan) {
      return plan.shape == Shape::kHosts && plan.algorithms.front() == Algorithm::kRecursive;
    });
  };
  EXPECT_TRUE(hosts_alone(cluster({2, 2, 2, 2}, {2, 2, 2})));
  EXPECT_FALSE(hosts_alone(cluster({2, 2, 2, 2})));
}

TEST(Planner, ACallThatIsABitLargerThanTheLargestChunkIsCut) {
  // Also if its record began with one that is not.
  LinkModel model = fast_links(1);
  model.chunk_s = 1e-2;
  Planner planner(cluster({2, 2}), {}, model);
  EXPECT_EQ(planner.choose(floats(kMaxChunkBytes)).chunking.chunks, 1U);
  const Chunking cut = planner.choose(floats(kMaxChunkBytes + 4096)).chunking;
  EXPECT_EQ(cut.chunks, 2U);
  EXPECT_LE(cut.chunk_elements * 4, kMaxChunkBytes);
}

TEST(Planner, CutsAreAtWholeBlocksOfTheWireFormats) {
  const Planner planner(cluster({2, 2}), {}, slow_uplinks(1));
  for (const std::size_t wanted : {1U, 255U, 256U, 257U, 511U, 513U}) {
    Plan plan;
    plan.algorithms = {Algorithm::kDirect};
    plan.chunking.chunk_elements = wanted;
    const std::size_t chunk = planner.finish(plan, floats(4000)).chunking.chunk_elements;
    EXPECT_EQ(chunk, wanted <= 256 ? wanted : (wanted / 256 + 1) * 256);
  }
}

TEST(Planner, SumsThatAreKeptWideInStepsHaveAQuarterOfTheSlots) {
  // They take four times the memory of the chunk.
  const Planner planner(cluster(std::vector<int>(8, 1)), {}, slow_uplinks(1));
  AllreduceShape shape;
  shape.width = 2;
  shape.elements = 8 << 20;
  const auto slots = [&](Algorithm algorithm, bool rounds_each_step) {
    shape.rounds_each_step = rounds_each_step;
    Plan plan;
    plan.algorithms = {algorithm};
    plan.chunking.chunk_elements = 64 << 10;
    return planner.finish(plan, shape).chunking.slots;
  };
  for (const Algorithm algorithm : {Algorithm::kDoubling, Algorithm::kMultiplying, Algorithm::kRecursive}) {
    EXPECT_EQ(slots(algorithm, false), 32U) << name_of(algorithm);
    EXPECT_EQ(slots(algorithm, true), 8U) << name_of(algorithm);
  }
  for (const Algorithm algorithm : {Algorithm::kDirect, Algorithm::kOneShot, Algorithm::kRing}) {
    EXPECT_EQ(slots(algorithm, true), 32U) << name_of(algorithm);
  }
}

TEST(Planner, ARingKeepsTheOrderOfTwoAlone) {
  const auto allowed = [](const Topology& topology, Shape form, Algorithm algorithm) {
    Plan plan;
    plan.shape = form;
    plan.algorithms = {algorithm};
    return Planner(topology, {}, slow_uplinks(1)).allows(plan, floats(1 << 20));
  };
  for (const Shape form : {Shape::kTiers, Shape::kHosts}) {
    EXPECT_TRUE(allowed(cluster({2, 2}), form, Algorithm::kRing)) << name_of(form);
    EXPECT_FALSE(allowed(cluster({2, 2, 2}), form, Algorithm::kRing)) << name_of(form);
  }
  EXPECT_FALSE(allowed(cluster({2, 2}), Shape::kRanks, Algorithm::kRing)) << "of four ranks";
  EXPECT_TRUE(allowed(cluster({1, 1}), Shape::kRanks, Algorithm::kRing));
}

TEST(Planner, LeadersHaveNoRingAndNoCollectivesOfMpi) {
  const Planner planner(cluster({1, 1}), {'p', Determinism::kOff}, slow_uplinks(1));
  Plan plan;
  plan.shape = Shape::kLeaders;
  for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kMpi}) {
    plan.algorithms = {algorithm};
    EXPECT_FALSE(planner.allows(plan, floats(64))) << name_of(algorithm);
  }
  plan.algorithms = {Algorithm::kDirect};
  EXPECT_TRUE(planner.allows(plan, floats(64)));
}

TEST(Planner, TextOfAPlanSaysWhereItReducesAndHow) {
  Plan plan;
  plan.algorithms = {Algorithm::kDirect, Algorithm::kDoubling};
  plan.chunking = {.chunk_elements = 256, .chunks = 3};
  EXPECT_EQ(plan.to_text(), "tiers: direct, recursive doubling; 3 x 256 elements");
  plan.memory = 1;
  EXPECT_EQ(plan.to_text(), "tiers: direct, recursive doubling; 3 x 256 elements, staged from CUDA memory");
  plan.device = DevicePath::kNcclHosts;
  EXPECT_EQ(plan.to_text(), "NCCL within hosts; tiers: direct, recursive doubling; 3 x 256 elements");
  plan.device = DevicePath::kIpc;
  EXPECT_EQ(plan.to_text(), "CUDA IPC within hosts; tiers: direct, recursive doubling; 3 x 256 elements");
  plan.device = DevicePath::kNcclTiers;
  EXPECT_EQ(plan.to_text(), "NCCL in every tier; 3 x 256 elements");
  plan.device = DevicePath::kNccl;
  EXPECT_EQ(plan.to_text(), "NCCL all-reduce");
  plan.plain_mpi = true;
  EXPECT_EQ(plan.to_text(), "MPI_Allreduce");
  Plan within_a_host;
  within_a_host.chunking = {.chunk_elements = 7, .chunks = 1};
  EXPECT_EQ(within_a_host.to_text(), "reduce-scatter + all-gather; 1 x 7 elements");
}

TEST(Planner, WhatFillsWholeChunksHasNoEmptyOne) {
  const Planner planner(cluster({2, 2, 2, 2}, {2, 2, 2}), {}, slow_uplinks(2));
  const auto on_device = [&](std::size_t elements) {
    AllreduceShape shape;
    shape.elements = elements;
    shape.memory = 1;
    shape.nccl = shape.nccl_tiers = shape.nccl_hosts = true;
    return planner.candidates(shape);
  };
  for (const Plan& plan : on_device(200 << 20)) {
    if (plan.device == DevicePath::kNccl) continue;
    const std::size_t chunk = plan.chunking.chunk_elements;
    for (const Plan& same : on_device(3 * chunk)) {
      if (same.chunking.chunk_elements != chunk) continue;
      EXPECT_EQ(same.chunking.chunks, 3U) << same.to_text();
    }
    for (const Plan& more : on_device(3 * chunk + 1)) {
      if (more.chunking.chunk_elements != chunk) continue;
      EXPECT_EQ(more.chunking.chunks, 4U) << more.to_text();
    }
  }
}

TEST(Planner, NcclIsACandidateWhereItCanReduceSomething) {
  const Planner planner(cluster({2, 2}), {'n', Determinism::kRun}, slow_uplinks(1));
  const auto by_nccl = [&](std::size_t elements, bool nccl) {
    AllreduceShape shape;
    shape.elements = elements;
    shape.memory = 1;
    shape.nccl = nccl;
    const auto plans = planner.candidates(shape);
    return std::any_of(plans.begin(), plans.end(),
                       [](const Plan& plan) { return plan.device == DevicePath::kNccl; });
  };
  EXPECT_TRUE(by_nccl(1 << 20, true));
  EXPECT_FALSE(by_nccl(1 << 20, false));
  EXPECT_FALSE(by_nccl(0, true)) << "nothing to reduce";
}

TEST(Planner, WhatIsSmallerThanAChunkIsOneOfWholeParts) {
  const Planner planner(cluster({2, 2, 2, 2}, {2, 2, 2}), {'b', Determinism::kRun}, slow_uplinks(2));
  for (const std::size_t elements : {1U, 7U, 8U, 1000U}) {
    AllreduceShape shape;
    shape.elements = elements;
    shape.memory = 1;
    shape.nccl = shape.nccl_tiers = true;
    const auto plans = planner.candidates(shape);
    ASSERT_EQ(plans.size(), 1U);
    ASSERT_EQ(plans[0].device, DevicePath::kNcclTiers);
    EXPECT_EQ(plans[0].chunking.chunks, 1U);
    EXPECT_GE(plans[0].chunking.chunk_elements, elements);
    EXPECT_LT(plans[0].chunking.chunk_elements, elements + 8 * 64);
    EXPECT_EQ(plans[0].chunking.chunk_elements % 8, 0U) << "of each of 8 ranks";
  }
}

TEST(Planner, ChunksOnADeviceAreAsLargeAsTheirMemoryAllows) {
  // A chunk of a few elements would pay for its start again and again.
  const Planner planner(cluster({3, 3}), {'b', Determinism::kRun}, slow_uplinks(1));
  AllreduceShape shape;
  shape.elements = 64 << 20;
  shape.memory = 1;
  shape.nccl = shape.nccl_hosts = true;
  for (const std::size_t width : {2U, 4U, 8U}) {
    shape.width = width;
    const auto plans = planner.candidates(shape);
    ASSERT_FALSE(plans.empty());
    for (const Plan& plan : plans) {
      ASSERT_EQ(plan.device, DevicePath::kNcclHosts);
      EXPECT_GT(plan.chunking.chunk_elements * width, kDeviceChunkBytes / 2);
      EXPECT_LE(plan.chunking.chunk_elements * width, kDeviceChunkBytes);
      EXPECT_EQ(plan.chunking.chunk_elements % (3 * 64), 0U) << "whole cache lines of each rank";
    }
  }
}

TEST(Planner, WhatFillsAChunkOnADeviceIsNotCut) {
  // Even if it cannot be divided into whole cache lines of each rank.
  const Planner planner(cluster({3, 3}), {'b', Determinism::kRun}, slow_uplinks(1));
  AllreduceShape shape = floats(kDeviceChunkBytes);
  shape.memory = 1;
  shape.nccl = shape.nccl_hosts = true;
  EXPECT_EQ(planner.candidates(shape).front().chunking.chunks, 1U);
  ++shape.elements;
  EXPECT_EQ(planner.candidates(shape).front().chunking.chunks, 2U);
}

TEST(Planner, WhereNcclReducesInEveryTierThereIsAChunkForEachStep) {
  const auto plan_on = [](const Topology& topology) {
    const Planner planner(topology, {'b', Determinism::kRun}, slow_uplinks(topology.tiers().size() - 1));
    AllreduceShape shape = floats(256 << 20);
    shape.memory = 1;
    shape.nccl = shape.nccl_tiers = true;
    return planner.candidates(shape).front();
  };
  // Reduce-scatter and all-gather, within hosts, between them, and between racks.
  const Plan hosts = plan_on(cluster({2, 2}));
  const Plan racks = plan_on(cluster({2, 2, 2, 2}, {2, 2, 2}));
  for (const Plan* plan : {&hosts, &racks}) {
    ASSERT_EQ(plan->device, DevicePath::kNcclTiers);
    const std::size_t used = plan->chunking.slots * plan->chunking.chunk_elements * 4;
    EXPECT_LE(used, kTiersScratchBytes);
    EXPECT_GT(used, kTiersScratchBytes * 9 / 10);
  }
  EXPECT_EQ(hosts.chunking.slots, 4U);
  EXPECT_EQ(racks.chunking.slots, 6U);
}

TEST(Planner, WhereBitsMayNotDependOnTimesOneWayOfADeviceIsChosenForAll) {
  AllreduceShape shape;
  shape.elements = 16 << 20;
  shape.memory = 1;
  shape.nccl = shape.nccl_tiers = shape.nccl_hosts = true;
  const auto devices_of = [&](Determinism determinism) {
    const Planner planner(cluster({2, 2}), {'p', determinism}, slow_uplinks(1));
    std::set<DevicePath> devices;
    for (const Plan& plan : planner.candidates(shape)) devices.insert(plan.device);
    return devices;
  };
  EXPECT_EQ(devices_of(Determinism::kRun).size(), 1U);
  EXPECT_GT(devices_of(Determinism::kOff).size(), 1U);
}

TEST(Planner, ChunksOfSeveralSizesAreTriedWhateverAnElementsWidth) {
  for (const std::size_t width : {2U, 4U, 8U}) {
    const Planner planner(cluster({2, 2}), {}, slow_uplinks(1));
    AllreduceShape shape;
    shape.width = width;
    shape.elements = (std::size_t{8} << 20) / width;
    std::set<std::size_t> sizes;
    for (const Plan& plan : planner.candidates(shape)) sizes.insert(plan.chunking.chunk_elements * width);
    EXPECT_GT(sizes.size(), 2U) << width;
    EXPECT_LE(*sizes.rbegin(), kMaxChunkBytes) << width;
  }
}

TEST(Planner, NoCandidateIsTriedTwice) {
  for (const std::size_t bytes :
       {4U << 10, 64U << 10, 100U << 10, 128U << 10, 256U << 10, 512U << 10, 3U << 20}) {
    for (const auto& hosts : std::vector<std::vector<int>>{{4}, {2, 2}, {2, 2, 2, 2, 2}}) {
      const Planner planner(cluster(hosts), {}, slow_uplinks(hosts.size() > 1 ? 1 : 0));
      std::set<std::string> texts;
      for (const Plan& plan : planner.candidates(floats(bytes))) {
        EXPECT_TRUE(texts.insert(plan.to_text()).second) << plan.to_text() << " for " << bytes << " bytes";
      }
    }
  }
}

TEST(Planner, TwoHostsDoNotExchangeInOneShotWhatTheyWouldInDoubling) {
  const auto one_shot_of_hosts = [](const Topology& topology) {
    const Planner planner(topology, {}, slow_uplinks(topology.tiers().size() - 1));
    const auto plans = planner.candidates(floats(kSmallBytes * 2));
    return std::any_of(plans.begin(), plans.end(), [](const Plan& plan) {
      return plan.shape == Shape::kHosts && plan.algorithms.front() == Algorithm::kOneShot;
    });
  };
  EXPECT_FALSE(one_shot_of_hosts(cluster({2, 2})));
  EXPECT_TRUE(one_shot_of_hosts(cluster({2, 2}, {1, 1}))) << "of two racks";
}

TEST(Planner, HostsDoNotExchangeInOneShotWhatLeadersWould) {
  Plan plan;
  plan.shape = Shape::kHosts;
  plan.algorithms = {Algorithm::kOneShot};
  const auto allowed = [&](std::size_t hosts) {
    return Planner(cluster(std::vector<int>(hosts, 1)), {}, fast_links(1)).allows(plan, floats(64));
  };
  EXPECT_FALSE(allowed(kFewHosts));
  EXPECT_TRUE(allowed(kFewHosts + 1));
}

TEST(Planner, WhatIsKnownOfASizeHoldsForTheQuarterOfAPowerOfTwo) {
  Planner planner(cluster({2, 2}), {}, slow_uplinks(1));
  const AllreduceShape learned = floats(4 << 20);
  for (int i = 0; i < 2; ++i) planner.learn(learned, planner.choose(learned).candidate, 1e-2);
  EXPECT_EQ(planner.explain(floats((4 << 20) - 4)), "");
  EXPECT_EQ(planner.explain(floats(5 << 20)), "");
  EXPECT_NE(planner.explain(floats((5 << 20) - 4)), "");
}

TEST(Planner, OfEqualPredictionsTheLeadersComeFirst) {
  // Without an agreement: between two hosts of one rank, leaders and all ranks do the same.
  const Planner planner(cluster({1, 1}), {}, fast_links(1));
  const auto plans = planner.candidates(floats(64));
  for (std::size_t i = 1; i < plans.size(); ++i) {
    EXPECT_LE(plans[i - 1].predicted_s, plans[i].predicted_s);
    EXPECT_FALSE(plans[i - 1].predicted_s == plans[i].predicted_s && plans[i].shape == Shape::kLeaders &&
                 plans[i - 1].shape != Shape::kLeaders)
        << plans[i].to_text();
  }
}

TEST(Planner, MpisOwnCollectivesRunOneAfterTheOther) {
  // All ranks have to start them in the same order.
  Planner planner(cluster({2, 2}), {'m', Determinism::kRun}, slow_uplinks(1));
  for (const std::size_t bytes : {64U, 64U << 10, 64U << 20}) {
    EXPECT_EQ(planner.choose(floats(bytes)).chunking.slots, 1U) << bytes;
  }
}

TEST(Planner, SmallCallsAndRanksThatTakeTurnsKeepToFewSlotsAndOthersHaveTheWholeStage) {
  for (const bool taking_turns : {false, true}) {
    PlannerRules rules;
    rules.taking_turns = taking_turns;
    for (const auto& hosts : std::vector<std::vector<int>>{{2}, {2, 2}, {16, 16}}) {
      Planner planner(cluster(hosts), rules, slow_uplinks(hosts.size() > 1 ? 1 : 0));
      for (const std::size_t bytes : {4u, 4096u, 8192u, 8196u, 1u << 16, 1u << 20, 1u << 26}) {
        const Chunking cut = planner.choose(floats(bytes)).chunking;
        if (cut.chunks == 0) continue;  // MPI's own
        const std::size_t all = std::min(kMaxSlots, kStageBytes / cut.slot_bytes);
        EXPECT_EQ(cut.slots, taking_turns    ? 2
                             : bytes <= 8192 ? 4
                                             : all)
            << bytes << " bytes on " << hosts.size() << " hosts";
      }
    }
  }
}

/// What a plan does, but for its chunks.
struct Kind {
  DevicePath device;
  bool plain_mpi;
  Shape shape;
  std::vector<Algorithm> algorithms;
  auto operator<=>(const Kind&) const = default;
};
Kind kind_of(const Plan& plan) { return {plan.device, plan.plain_mpi, plan.shape, plan.algorithms}; }

/// What no plan may do with a call, whatever the planner thinks of it.
void expect_safe(const Plan& plan, const AllreduceShape& shape, std::size_t hosts,
                 const PlannerRules& rules) {
  SCOPED_TRACE(plan.to_text() + " for " + std::to_string(shape.bytes()) + " bytes in elements of " +
               std::to_string(shape.width) + " between " + std::to_string(hosts) + " hosts, mode " +
               rules.mode);
  if (plan.device == DevicePath::kNccl) {
    EXPECT_TRUE(shape.nccl);
    return;
  }
  if (plan.plain_mpi) {
    EXPECT_TRUE(shape.one_buffer && !shape.encoded && shape.memory == 0);
    EXPECT_TRUE(shape.order_free || rules.determinism == Determinism::kOff);
    return;
  }
  const std::size_t chunk = plan.chunking.chunk_elements * shape.width;
  EXPECT_GE(plan.chunking.chunk_elements * plan.chunking.chunks, shape.elements);
  if (plan.device == DevicePath::kNcclTiers) {
    EXPECT_TRUE(shape.nccl && shape.nccl_tiers);
    EXPECT_LE(chunk * plan.chunking.slots, kTiersScratchBytes);
    return;
  }
  EXPECT_LE(plan.chunking.slots * plan.chunking.slot_bytes, rules.stage_bytes);
  if (plan.device != DevicePath::kStaged) {
    EXPECT_TRUE(plan.device == DevicePath::kIpc ? shape.ipc : shape.nccl && shape.nccl_hosts);
    EXPECT_LE(chunk, kDeviceChunkBytes);
    return;
  }
  EXPECT_LE(chunk, plan.chunking.slot_bytes);
  EXPECT_LE(plan.chunking.slots, kMaxSlots);
  if (plan.shape == Shape::kLeaders) {
    EXPECT_LE(shape.bytes(), 131'072U) << "packets have no more room";
    EXPECT_EQ(plan.chunking.chunks, 1U);
    EXPECT_LE(hosts, 64U);
    const Algorithm way = plan.algorithms.front();
    const bool in_rounds = way == Algorithm::kDoubling || way == Algorithm::kMultiplying;
    EXPECT_TRUE(hosts <= 8 || in_rounds || way == Algorithm::kRecursive) << "a packet for each host";
    if (in_rounds && shape.rounds_each_step) {
      EXPECT_LE(shape.bytes() * 4 / shape.width, 131'072U) << "likewise of float";
    }
    EXPECT_TRUE(!shape.encoded && shape.memory == 0);
  }
  if (shape.encoded) {
    for (const Algorithm one : plan.algorithms) EXPECT_EQ(one, Algorithm::kDirect);
  }
}

/// Whatever size comes first: what is known of it is used for those alike, and must suit them.
TEST(Planner, ARecordServesAllItsCalls) {
  std::mt19937 random(41);
  const auto any = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  const std::vector<std::pair<std::vector<int>, std::vector<int>>> clusters = {
      {{8}, {}},
      {{1, 1}, {}},
      {{4, 4}, {}},
      {{1, 1, 1, 1}, {}},
      {{2, 1, 1}, {}},
      {{3, 3, 3}, {}},
      {{2, 2, 2, 2}, {2, 2, 2}},
      {std::vector<int>(8, 2), {2, 4, 2}},
      {std::vector<int>(9, 1), {}},
      {std::vector<int>(40, 2), {}}};
  std::vector<Topology> topologies;
  for (const auto& [hosts, dims] : clusters) topologies.push_back(cluster(hosts, dims));
  std::size_t changed = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    const std::size_t which = any(topologies.size());
    const Topology& topology = topologies[which];
    const std::size_t hosts = clusters[which].first.size();
    PlannerRules rules;
    rules.mode = std::string("pppppppbnrmc")[any(12)];
    rules.determinism = std::array{Determinism::kRun, Determinism::kPlacement, Determinism::kOff}[any(3)];
    const std::size_t tiers = ClusterShape::of(topology).tiers.size();
    const LinkModel model = any(2) == 0 ? slow_uplinks(tiers) : fast_links(tiers);
    AllreduceShape first;
    first.width = std::array{2, 4, 8}[any(3)];
    first.rounds_each_step = first.width == 2 && any(4) != 0;
    first.order_free = !first.rounds_each_step && any(3) == 0;
    first.encoded = first.width == 4 && !first.order_free && any(5) == 0;
    first.one_buffer = any(2) == 0;
    if (any(3) == 0) {
      first.memory = 1;
      first.nccl = any(2) == 0;
      first.nccl_tiers = first.nccl && any(2) == 0;
      first.nccl_hosts = first.nccl && any(2) == 0;
      first.ipc = !first.nccl && any(2) == 0;
    }
    const std::size_t limit =
        std::array{std::size_t{32} << 10,          std::size_t{128} << 10, std::size_t{256} << 10,
                   (std::size_t{1} << 20) / hosts, std::size_t{1} << 20,   std::size_t{1} << any(22)}[any(6)];
    AllreduceShape second = first;
    first.elements = limit / first.width;
    second.elements = any(2) == 0 ? first.elements * (100 + any(26)) / 100 : first.elements + 1 + any(3);
    // Also what is the same size, but not the same call.
    if (any(4) == 0) second.nccl_tiers = second.nccl && !second.nccl_tiers;
    if (any(4) == 0) second.nccl_hosts = second.nccl && !second.nccl_hosts;
    if (any(4) == 0 && second.width == 2) second.rounds_each_step = !second.order_free;
    if (any(2) == 0) std::swap(first, second);
    Planner planner(topology, rules, model);
    planner.choose(first);
    const Planner fresh(topology, rules, model);
    std::set<Kind> direct;
    const std::vector<Plan> candidates = fresh.candidates(second);
    for (const Plan& plan : candidates) direct.insert(kind_of(plan));
    // Of more of them those that are predicted worst are left out.
    const bool all = candidates.size() < 8 && !second.nccl;
    for (int call = 0; call < 100; ++call) {
      const Plan plan = planner.choose(second);
      expect_safe(plan, second, hosts, rules);
      // The other modes ask for an algorithm, whatever its order.
      if (rules.mode == 'p') {
        EXPECT_TRUE(fresh.allows(plan, second)) << plan.to_text();
      }
      if (all) {
        EXPECT_TRUE(direct.contains(kind_of(plan))) << plan.to_text() << " is no candidate of this size";
      }
      if (testing::Test::HasFailure()) return;
      changed += plan.candidate > 0 ? 1 : 0;
      // Far off, so that all are tried.
      planner.learn(second, plan.candidate, 1e-6 * static_cast<double>(1 + any(1000)));
    }
  }
  EXPECT_GT(changed, 10'000U);
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
}

/// What leaders may do with a message.
std::set<Algorithm> ways_of_leaders(const Topology& topology, std::size_t bytes,
                                    bool rounds_each_step = false) {
  AllreduceShape shape = floats(bytes);
  shape.rounds_each_step = rounds_each_step;
  std::set<Algorithm> ways;
  const Planner planner(topology, {}, slow_uplinks(topology.tiers().size() - 1));
  for (const Plan& plan : planner.candidates(shape)) {
    if (plan.shape == Shape::kLeaders) ways.insert(plan.algorithms.front());
  }
  return ways;
}

TEST(Planner, LeadersOfManyHostsSendAFewMessages) {
  using Ways = std::set<Algorithm>;
  const auto hosts = [](std::size_t count) { return cluster(std::vector<int>(count, 1)); };
  const Ways few = {Algorithm::kDirect, Algorithm::kOneShot, Algorithm::kStar, Algorithm::kDoubling};
  for (const std::size_t bytes : {4U, 4096U, 32U << 10}) {
    EXPECT_EQ(ways_of_leaders(hosts(3), bytes),
              (Ways{Algorithm::kDirect, Algorithm::kOneShot, Algorithm::kStar}))
        << "two of three are a pair, and the third has none";
    EXPECT_EQ(ways_of_leaders(hosts(7), bytes), few);
    const Ways eight = ways_of_leaders(hosts(kFewHosts), bytes);
    EXPECT_TRUE(std::includes(eight.begin(), eight.end(), few.begin(), few.end()));
    EXPECT_TRUE(eight.contains(Algorithm::kMultiplying)) << "in two rounds rather than three";
    for (const std::size_t count : {9U, 12U, 16U, 31U, 64U}) {
      Ways many = {Algorithm::kDoubling, Algorithm::kMultiplying};
      EXPECT_EQ(ways_of_leaders(hosts(count), bytes, true), many) << count;
      if (count == 16 || count == 64) many.insert(Algorithm::kRecursive);
      EXPECT_EQ(ways_of_leaders(hosts(count), bytes), many) << count;
    }
    EXPECT_EQ(ways_of_leaders(hosts(kLeadersHosts + 1), bytes), Ways{}) << "too many hosts";
    // Racks of four, and some of three.
    EXPECT_EQ(ways_of_leaders(cluster(std::vector<int>(15, 1), {1, 4, 4}), bytes),
              (Ways{Algorithm::kDoubling, Algorithm::kMultiplying}));
    EXPECT_EQ(ways_of_leaders(cluster(std::vector<int>(16, 1), {1, 2, 2, 2, 2}), bytes),
              (Ways{Algorithm::kDoubling, Algorithm::kRecursive}))
        << "fours are in no group";
  }
  EXPECT_EQ(ways_of_leaders(hosts(16), 64 << 10), Ways{Algorithm::kRecursive});
  EXPECT_EQ(ways_of_leaders(hosts(15), 64 << 10), Ways{});
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

TEST(Planner, AQuarterMoreOrLessThanPredictedIsStillGood) {
  const AllreduceShape shape = floats(1 << 20);
  for (const double times : {0.75, 1.25}) {
    Planner planner(cluster({2, 2, 2, 2}), {}, slow_uplinks(1));
    for (int i = 0; i < 20; ++i) {
      const Plan plan = planner.choose(shape);
      EXPECT_EQ(plan.candidate, 0U);
      planner.learn(shape, plan.candidate, plan.predicted_s * times);
    }
    EXPECT_EQ(planner.explain(shape).find("corrected"), std::string::npos);
  }
}

TEST(Planner, WhatIsFastInLessThanHalfOfItsTriesIsNotChosen) {
  const AllreduceShape shape = floats(4096);
  for (const int fast : {3, 4}) {  // of seven
    Planner planner(cluster({2, 2, 2, 2}, {2, 2, 2}), {}, slow_uplinks(2));
    const std::size_t lucky = planner.candidates(shape).size() - 1;
    int calls = 0;
    // One more than the tries of all, as the first call says nothing.
    for (std::size_t i = 0; i < 7 * (lucky + 1) + 1; ++i) {
      const std::size_t candidate = planner.choose(shape).candidate;
      const bool quick = candidate == lucky && calls++ < fast;
      planner.learn(shape, candidate, quick ? 1e-4 : 1e-3 + 1e-6 * static_cast<double>(candidate));
    }
    EXPECT_EQ(planner.choose(shape).candidate, fast > 3 ? lucky : 0U);
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
  const std::string said = planner.explain(shape);
  EXPECT_NE(said.find(", corrected"), std::string::npos) << said;
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
    planner.learn(shape, planner.choose(shape).candidate, 0.0125);
  }
  const std::string said = planner.explain(shape);
  EXPECT_NE(said.find("65536 bytes: "), std::string::npos) << said;
  EXPECT_NE(said.find("predicted "), std::string::npos);
  EXPECT_NE(said.find("measured 12.500 ms"), std::string::npos) << said;
  EXPECT_NE(said.find("instead of "), std::string::npos);
  EXPECT_EQ(said.find("measured "), said.rfind("measured ")) << "the others have not been tried: " << said;
  EXPECT_EQ(planner.explain(shape), "") << "nothing new";
  const std::size_t candidates = planner.candidates(shape).size();
  for (std::size_t i = 0; i < 7 * candidates; ++i) {
    planner.learn(shape, planner.choose(shape).candidate, 0.0125);
  }
  const std::string settled = planner.explain(shape);
  EXPECT_NE(settled.find("expected now 12.500 ms"), std::string::npos) << settled;
  std::size_t others = 0;
  for (std::size_t at = 0; (at = settled.find("measured 12.500 ms", at)) != std::string::npos; ++at) ++others;
  EXPECT_EQ(others, candidates) << "the last time, and each of the others: " << settled;
}

TEST(Planner, SaysThatAPredictionWasCorrectedOnlyIfItWas) {
  const AllreduceShape shape = floats(1 << 20);
  for (const double times : {1.0, 3.0}) {
    Planner planner(cluster({2, 2, 2, 2}), {}, slow_uplinks(1));
    for (int i = 0; i < 4; ++i) {
      const Plan plan = planner.choose(shape);
      planner.learn(shape, plan.candidate, times * plan.predicted_s);
    }
    const std::string said = planner.explain(shape);
    EXPECT_NE(said, "");
    EXPECT_EQ(said.find(", corrected") != std::string::npos, times > 1) << said;
  }
}

}  // namespace
}  // namespace ddl
