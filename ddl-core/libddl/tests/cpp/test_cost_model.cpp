// Predicted times beside ones that are computed by hand, from the formulas of E. Chan et al. (2007), for
// links whose figures are round numbers: each part of a prediction is looked at alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "described_cluster.hpp"
#include "plan/cost_model.hpp"

namespace ddl {
namespace {

constexpr double kLatency = 1e-5;
constexpr double kRate = 1e9;

/// Four hosts of two ranks, on one switch.
ClusterShape four_hosts() {
  ClusterShape cluster;
  cluster.tiers = {{4, 1, 2, 1}};
  cluster.hosts = 4;
  cluster.ranks_a_host = cluster.least_ranks_a_host = 2;
  cluster.ranks = 8;
  cluster.in_pairs = true;
  return cluster;
}

/// Two racks of two hosts of two ranks.
ClusterShape two_racks() {
  ClusterShape cluster = four_hosts();
  cluster.tiers = {{2, 1, 2, 1}, {2, 2, 4, 1}};
  return cluster;
}

/// Links of 1 GB/s and 10 us, one tier after the other, and processors and memory that take no time.
LinkModel links(std::size_t tiers) {
  LinkModel model = LinkModel::assumed(tiers);
  for (LinkFigures& link : model.tiers) link = {kLatency, kRate, 1, 1};
  model.memory = {0, 1e30};
  model.chunk_s = model.message_s = 0;
  model.overlap = 0;
  return model;
}

AllreduceShape bytes_of(std::size_t bytes) {
  AllreduceShape shape;
  shape.elements = bytes / 4;
  return shape;
}

Plan plan_of(Shape shape, std::vector<Algorithm> algorithms) {
  Plan plan;
  plan.shape = shape;
  plan.algorithms = std::move(algorithms);
  plan.chunking.chunks = 1;
  return plan;
}

TEST(CostModel, PlainMpiIsARingOrRecursiveDoublingWhicheverIsShorter) {
  LinkModel model = links(1);
  model.tiers[0].to_one_peer = 0.5;
  model.tiers[0].by_one_rank = 0.25;
  const double rate = kRate * 0.5 * 0.25;
  Plan plan;
  plan.plain_mpi = true;
  // Doubling: 3 rounds, in which both ranks of a host send all. Ring of 8: 14 rounds, 14/8 of the bytes.
  for (const std::size_t bytes : {400U, 2000U}) {
    const Cost cost = cost_of(plan, bytes_of(bytes), four_hosts(), model);
    EXPECT_NEAR(cost.seconds, 3 * kLatency + 3 * 2 * static_cast<double>(bytes) / rate, 1e-12) << bytes;
    EXPECT_NEAR(cost.latency_s, 3 * kLatency, 1e-12);
  }
  for (const std::size_t bytes : {8000U, 8'000'000U}) {
    const Cost cost = cost_of(plan, bytes_of(bytes), four_hosts(), model);
    EXPECT_NEAR(cost.seconds, 14 * kLatency + 14.0 / 8 * static_cast<double>(bytes) / rate, 1e-9) << bytes;
    EXPECT_NEAR(cost.latency_s, 14 * kLatency, 1e-12);
  }
}

TEST(CostModel, PlainMpiIsAsSlowAsTheSlowestLink) {
  Plan plan;
  plan.plain_mpi = true;
  for (const std::size_t slow : {0U, 1U}) {
    LinkModel model = links(2);
    model.tiers[slow].bytes_per_s = kRate / 10;
    model.tiers[1 - slow].latency_s = 3 * kLatency;
    const Cost cost = cost_of(plan, bytes_of(80'000'000), two_racks(), model);
    EXPECT_NEAR(cost.tiers_s[slow], 14.0 / 8 * 80e6 / (kRate / 10), 1e-9);
    EXPECT_EQ(cost.tiers_s[1 - slow], 0);
    EXPECT_NEAR(cost.latency_s, 14 * 3 * kLatency, 1e-12);
  }
}

TEST(CostModel, NcclIsARingByEveryLinkAndTheSlowestCounts) {
  for (const double uplink : {kRate / 10, 10 * kRate}) {
    LinkModel model = links(2);
    model.tiers[0] = {1e-5, kRate, 0.5, 1};
    model.tiers[1] = {2e-5, uplink, 1, 1};
    model.devices = {4e-5, 100e9};
    Plan plan;
    plan.device = DevicePath::kNccl;
    AllreduceShape shape = bytes_of(80'000'000);
    shape.memory = 1;
    const Cost cost = cost_of(plan, shape, two_racks(), model);
    const double bytes = 14.0 / 8 * 80e6;
    const double slowest = std::max(bytes / (kRate / 2), bytes / uplink);
    EXPECT_NEAR(cost.memory_s, bytes / 100e9, 1e-12);
    EXPECT_NEAR(cost.latency_s, 4e-5 + 2 * 1e-5 + 2 * 2e-5, 1e-12);
    EXPECT_NEAR(cost.seconds, slowest + cost.latency_s, 1e-9);
  }
}

TEST(CostModel, NcclInEveryTierSendsBothHalvesWithinAHostAndSharesBetweenThem) {
  LinkModel model = links(1);
  model.devices = {1e-3, 1e8};  // slow, so that they count as a whole
  Plan plan = plan_of(Shape::kTiers, {});
  plan.device = DevicePath::kNcclTiers;
  AllreduceShape shape = bytes_of(8'000'000);
  shape.memory = 1;
  const double host = 2 * 3.0 / 4 * 8e6 / kRate + 2 * 2 * kLatency;  // reduce-scatter and all-gather of 4
  const double device = 2 * 1.0 / 2 * 8e6 / 1e8 + 4 * 1e-3;          // of 2, in 2 tiers, each twice
  EXPECT_NEAR(cost_of(plan, shape, four_hosts(), model).seconds, device + 0.1 * host, 1e-9);
}

TEST(CostModel, NcclReducesMoreOfWhatMoreGpusOfAHostHave) {
  LinkModel model = links(1);
  model.devices = {0, 1e8};
  ClusterShape cluster = four_hosts();
  cluster.ranks_a_host = cluster.least_ranks_a_host = 4;
  cluster.ranks = 16;
  Plan plan = plan_of(Shape::kTiers, {});
  plan.device = DevicePath::kNcclTiers;
  AllreduceShape shape = bytes_of(8'000'000);
  shape.memory = 1;
  const double host = 2 * 3.0 / 4 * 8e6 / kRate + 2 * 2 * kLatency;
  EXPECT_NEAR(cost_of(plan, shape, cluster, model).seconds, 2 * 3.0 / 4 * 8e6 / 1e8 + 0.1 * host, 1e-9);
}

TEST(CostModel, MpiPassesMemoryTwiceWithinAHostAndChunksOnceAndTheFirstAgain) {
  LinkModel model = links(0);
  model.memory = {1e-5, 1e9};
  ClusterShape host;
  host.ranks = host.ranks_a_host = host.least_ranks_a_host = 4;
  const AllreduceShape shape = bytes_of(8'000'000);
  const double once = 8e6 / 1e9 + 1e-5;
  Plan plan = plan_of(Shape::kTiers, {});
  plan.chunking.chunks = 4;
  EXPECT_NEAR(cost_of(plan, shape, host, model).seconds, once + 8e6 / 4 / 1e9 + 4 * 1e-5, 1e-12);
  plan = {};
  plan.plain_mpi = true;
  EXPECT_NEAR(cost_of(plan, shape, host, model).seconds, 2 * once + 4 * 1e-5, 1e-12);
}

TEST(CostModel, WhatIsStagedIsCopiedBesideTheTiers) {
  LinkModel model = links(1);
  model.copies = {1e-3, 1e8};
  AllreduceShape shape = bytes_of(8'000'000);
  shape.memory = 1;
  const Plan plan = plan_of(Shape::kTiers, {Algorithm::kDirect});
  const double host = 2 * 3.0 / 4 * 8e6 / kRate + 2 * kLatency;
  EXPECT_NEAR(cost_of(plan, shape, four_hosts(), model).seconds, 8e6 / 1e8 + 2e-3 + 0.1 * host, 1e-9);
}

TEST(CostModel, ADirectExchangeSendsSharesInTwoRoundsAndARingInManyMore) {
  const double bytes = 8e6;
  const AllreduceShape shape = bytes_of(8'000'000);
  const double shares = 2 * 3.0 / 4 * bytes;
  LinkModel model = links(1);
  model.tiers[0].to_one_peer = 0.5;
  const auto seconds = [&](Algorithm algorithm) {
    return cost_of(plan_of(Shape::kTiers, {algorithm}), shape, four_hosts(), model).seconds;
  };
  EXPECT_NEAR(seconds(Algorithm::kDirect), shares / kRate + 2 * kLatency, 1e-9);
  EXPECT_NEAR(seconds(Algorithm::kOneShot), 3 * bytes / kRate + kLatency, 1e-9);
  EXPECT_NEAR(seconds(Algorithm::kRing), shares / (kRate / 2) + 6 * kLatency, 1e-9);
  EXPECT_NEAR(seconds(Algorithm::kDoubling), 2 * bytes / (kRate / 2) + 2 * kLatency, 1e-9);
  EXPECT_NEAR(seconds(Algorithm::kRecursive), shares / (kRate / 2) + 4 * kLatency, 1e-9);
}

TEST(CostModel, MessagesAndBytesThatARankAddsAreItsWork) {
  LinkModel model = links(1);
  model.memory.bytes_per_s = 1e9;
  model.message_s = 1e-6;
  model.chunk_s = 1e-4;
  Plan plan = plan_of(Shape::kTiers, {Algorithm::kDirect});
  plan.chunking.chunks = 10;
  const Cost cost = cost_of(plan, bytes_of(8'000'000), four_hosts(), model);
  // 3 messages each way, and 3/4 of the bytes to add.
  EXPECT_NEAR(cost.work_s, 10 * 1e-4 + 10 * 6 * 1e-6 + 3.0 / 4 * 8e6 / 1e9, 1e-9);
}

TEST(CostModel, OwnersOfSeveralSegmentsSendAMessageForEach) {
  LinkModel model = links(1);
  model.message_s = 1e-6;
  ClusterShape cluster = four_hosts();
  cluster.tiers[0].segments = 3;
  const auto messages = [&](Algorithm algorithm) {
    const Plan plan = plan_of(Shape::kTiers, {algorithm});
    return cost_of(plan, bytes_of(8'000'000), cluster, model).work_s / 1e-6;
  };
  EXPECT_NEAR(messages(Algorithm::kDirect), 3 * 6, 1e-6);
  EXPECT_NEAR(messages(Algorithm::kOneShot), 3 * 3, 1e-6);
  EXPECT_NEAR(messages(Algorithm::kRing), 3 * 6, 1e-6);
  EXPECT_NEAR(messages(Algorithm::kDoubling), 3 * 2, 1e-6);
  EXPECT_NEAR(messages(Algorithm::kRecursive), 3 * 4, 1e-6);
}

TEST(CostModel, WhatARankAddsDependsOnTheAlgorithm) {
  LinkModel model = links(1);
  model.memory.bytes_per_s = 1e9;
  const auto added = [&](Shape shape, Algorithm algorithm) {
    return cost_of(plan_of(shape, {algorithm}), bytes_of(8'000'000), four_hosts(), model).work_s * 1e9 / 8e6;
  };
  EXPECT_NEAR(added(Shape::kTiers, Algorithm::kDirect), 3.0 / 4, 1e-9);
  EXPECT_NEAR(added(Shape::kTiers, Algorithm::kOneShot), 3, 1e-9);
  EXPECT_NEAR(added(Shape::kTiers, Algorithm::kRing), 3.0 / 4, 1e-9);
  EXPECT_NEAR(added(Shape::kTiers, Algorithm::kDoubling), 2, 1e-9);
  EXPECT_NEAR(added(Shape::kTiers, Algorithm::kRecursive), 3.0 / 4, 1e-9);
  EXPECT_NEAR(added(Shape::kHosts, Algorithm::kOneShot), 3, 1e-9);
  EXPECT_NEAR(added(Shape::kHosts, Algorithm::kDoubling), 2, 1e-9);
}

TEST(CostModel, HostsThatDoubleSendASumToTheNextRackOverTheLinksOfBothTiers) {
  const double bytes = 8e6;
  const Cost cost =
      cost_of(plan_of(Shape::kHosts, {Algorithm::kDoubling}), bytes_of(8'000'000), two_racks(), links(2));
  // A host's link carries its sum in both rounds; a rack's uplink those of its two hosts, in one.
  EXPECT_NEAR(cost.tiers_s[0], 2 * bytes / kRate, 1e-9);
  EXPECT_NEAR(cost.tiers_s[1], 2 * bytes / kRate, 1e-9);
  EXPECT_NEAR(cost.latency_s, 2 * kLatency, 1e-12);
}

TEST(CostModel, ADirectExchangeOfHostsCrossesTheUplinkWithTheSharesOfBothSides) {
  const double bytes = 8e6;
  const Cost cost =
      cost_of(plan_of(Shape::kHosts, {Algorithm::kDirect}), bytes_of(8'000'000), two_racks(), links(2));
  // A host sends a quarter to each of three others, twice; of a rack's, two hosts to two others.
  EXPECT_NEAR(cost.tiers_s[0], 2 * 1 * 3.0 / 4 * bytes / kRate, 1e-9);
  EXPECT_NEAR(cost.tiers_s[1], 2 * 2 * 2.0 / 4 * bytes / kRate, 1e-9);
  EXPECT_NEAR(cost.latency_s, 2 * kLatency, 1e-12);
}

TEST(CostModel, ARingOfHostsCarriesNearlyTwiceTheBytesByEveryLink) {
  LinkModel model = links(2);
  model.memory.bytes_per_s = 1e9;
  model.message_s = 1e-6;
  for (LinkFigures& link : model.tiers) link = {kLatency, kRate, 0.5, 0.5};
  const Cost cost =
      cost_of(plan_of(Shape::kHosts, {Algorithm::kRing}), bytes_of(8'000'000), two_racks(), model);
  for (const double seconds : cost.tiers_s) EXPECT_NEAR(seconds, 2 * 3.0 / 4 * 8e6 / (kRate / 4), 1e-9);
  EXPECT_NEAR(cost.latency_s, 6 * kLatency, 1e-12);
  EXPECT_NEAR(cost.work_s, 6 * 1e-6 + 8e6 / 1e9, 1e-9);
}

TEST(CostModel, HalvesOfHostsCrossTheUplinkAsOftenAsTheirPairsDo) {
  const Cost cost =
      cost_of(plan_of(Shape::kHosts, {Algorithm::kRecursive}), bytes_of(8'000'000), two_racks(), links(2));
  // Each host sends 3/2 of the bytes in 4 rounds; of its three peers, two are in the other rack.
  EXPECT_NEAR(cost.tiers_s[0], 3.0 / 2 * 8e6 / kRate, 1e-9);
  EXPECT_NEAR(cost.tiers_s[1], 3.0 / 2 * 2 * 2.0 / 3 * 8e6 / kRate, 1e-9);
  EXPECT_NEAR(cost.latency_s, 4 * kLatency, 1e-12);
}

TEST(CostModel, AmongHostsARankWorksOnceForAllTiers) {
  struct Expected {
    Shape shape;
    Algorithm algorithm;
    double messages;
    double added;  ///< times the bytes
  };
  const AllreduceShape shape = bytes_of(8'000'000);
  for (const auto& [form, algorithm, messages, added] : {Expected{Shape::kHosts, Algorithm::kDirect, 6, 1},
                                                         {Shape::kHosts, Algorithm::kOneShot, 3, 3},
                                                         {Shape::kLeaders, Algorithm::kStar, 6, 3},
                                                         {Shape::kHosts, Algorithm::kRing, 6, 1},
                                                         {Shape::kHosts, Algorithm::kDoubling, 2, 2},
                                                         {Shape::kHosts, Algorithm::kRecursive, 4, 0.75},
                                                         {Shape::kRanks, Algorithm::kDirect, 14, 1},
                                                         {Shape::kRanks, Algorithm::kDoubling, 3, 3},
                                                         {Shape::kRanks, Algorithm::kRecursive, 6, 0.875}}) {
    SCOPED_TRACE(std::string(name_of(form)) + ": " + name_of(algorithm));
    const Plan plan = plan_of(form, {algorithm});
    LinkModel model = links(2);
    model.message_s = 1;
    EXPECT_DOUBLE_EQ(cost_of(plan, shape, two_racks(), model).work_s, messages);
    model.message_s = 0;
    model.memory.bytes_per_s = 1;
    EXPECT_DOUBLE_EQ(cost_of(plan, shape, two_racks(), model).work_s, added * 8e6);
  }
}

TEST(CostModel, OneShotAndStarCrossTheUplinkForEachHostBehindIt) {
  const AllreduceShape shape = bytes_of(8'000'000);
  const Cost one_shot = cost_of(plan_of(Shape::kHosts, {Algorithm::kOneShot}), shape, two_racks(), links(2));
  // Each host sends all to three others; of a rack's, two to two others.
  EXPECT_NEAR(one_shot.tiers_s[0], 3 * 8e6 / kRate, 1e-12);
  EXPECT_NEAR(one_shot.tiers_s[1], 4 * 8e6 / kRate, 1e-12);
  EXPECT_NEAR(one_shot.latency_s, kLatency, 1e-12);
  const Cost star = cost_of(plan_of(Shape::kLeaders, {Algorithm::kStar}), shape, two_racks(), links(2));
  EXPECT_NEAR(star.tiers_s[0], 6 * 8e6 / kRate, 1e-12);
  EXPECT_NEAR(star.tiers_s[1], 4 * 8e6 / kRate, 1e-12);
  EXPECT_NEAR(star.latency_s, 2 * kLatency, 1e-12);
}

TEST(CostModel, AmongRanksTheLinkOfAHostCarriesWhatAllItsRanksSend) {
  const AllreduceShape shape = bytes_of(8'000'000);
  const auto cost = [&](Algorithm algorithm) {
    return cost_of(plan_of(Shape::kRanks, {algorithm}), shape, two_racks(), links(2));
  };
  // An eighth to each of six others of two ranks, and to each of four others of four, twice.
  const Cost direct = cost(Algorithm::kDirect);
  EXPECT_NEAR(direct.tiers_s[0], 2 * 2 * 6.0 / 8 * 8e6 / kRate, 1e-12);
  EXPECT_NEAR(direct.tiers_s[1], 2 * 4 * 4.0 / 8 * 8e6 / kRate, 1e-12);
  EXPECT_NEAR(direct.latency_s, 2 * kLatency, 1e-12);
  // All of it in each of three rounds.
  const Cost doubling = cost(Algorithm::kDoubling);
  EXPECT_NEAR(doubling.tiers_s[0], 3 * 2 * 8e6 / kRate, 1e-12);
  EXPECT_NEAR(doubling.tiers_s[1], 3 * 4 * 8e6 / kRate, 1e-12);
  EXPECT_NEAR(doubling.latency_s, 3 * kLatency, 1e-12);
}

TEST(CostModel, BetweenTwoHostsEachWayIsOneExchange) {
  ClusterShape two = four_hosts();
  two.tiers = {{2, 1, 2, 1}};
  two.hosts = 2;
  two.ranks = 4;
  const auto bytes = [&](Shape form, Algorithm algorithm) {
    const Cost cost = cost_of(plan_of(form, {algorithm}), bytes_of(8'000'000), two, links(1));
    return cost.tiers_s[0] * kRate / 8e6;
  };
  EXPECT_NEAR(bytes(Shape::kLeaders, Algorithm::kDirect), 1, 1e-9);
  EXPECT_NEAR(bytes(Shape::kLeaders, Algorithm::kOneShot), 1, 1e-9);
  EXPECT_NEAR(bytes(Shape::kLeaders, Algorithm::kStar), 2, 1e-9) << "to the other one, and back";
  EXPECT_NEAR(bytes(Shape::kLeaders, Algorithm::kRecursive), 1, 1e-9) << "a half there, and a half back";
}

TEST(CostModel, SumsOfHalvesAreSentAsFloats) {
  // After the first round, in which nothing has been added yet.
  AllreduceShape halves = bytes_of(8'000'000);
  halves.rounds_each_step = true;
  const auto bytes = [&](Algorithm algorithm) {
    const Cost cost = cost_of(plan_of(Shape::kTiers, {algorithm}), halves, four_hosts(), links(1));
    return cost.tiers_s[0] * kRate / 8e6;
  };
  EXPECT_NEAR(bytes(Algorithm::kDoubling), 1 + 2, 1e-9);
  EXPECT_NEAR(bytes(Algorithm::kRecursive), 0.5 + 2 * 0.25 + 0.75, 1e-9);
  EXPECT_NEAR(bytes(Algorithm::kDirect), 2 * 0.75, 1e-9) << "owners add up all at once";
}

TEST(CostModel, HostsOfASmallRackThatDoubleSendToSeveralOfALargeOne) {
  ClusterShape cluster = two_racks();
  cluster.tiers[1].segments = 2;
  LinkModel model = links(2);
  const Plan plan = plan_of(Shape::kHosts, {Algorithm::kDoubling});
  const Cost cost = cost_of(plan, bytes_of(8'000'000), cluster, model);
  EXPECT_NEAR(cost.tiers_s[0], (1 + 2) * 8e6 / kRate, 1e-12);
  EXPECT_NEAR(cost.tiers_s[1], 2 * 2 * 8e6 / kRate, 1e-12);
  model.message_s = 1;
  EXPECT_DOUBLE_EQ(cost_of(plan, bytes_of(8'000'000), cluster, model).work_s, 1 + 2);
}

TEST(CostModel, ChunksOverlapTheTiersButForTheFirst) {
  LinkModel model = links(2);
  model.overlap = 1;
  Plan plan = plan_of(Shape::kTiers, {Algorithm::kDirect, Algorithm::kDirect});
  plan.chunking.chunks = 10;
  const Cost cost = cost_of(plan, bytes_of(8'000'000), two_racks(), model);
  const double tier = 8e6 / kRate;  // a half each way, of each tier
  EXPECT_NEAR(cost.tiers_s[0], tier, 1e-9);
  EXPECT_NEAR(cost.seconds, tier + 2 * tier / 10 + 4 * kLatency, 1e-9);
}

TEST(CostModel, MoreThanTheCacheHoldsIsReadTwice) {
  LinkModel model = links(0);
  model.memory = {0, 1e9};
  ClusterShape host;
  host.ranks = host.ranks_a_host = host.least_ranks_a_host = 4;
  Plan plan = plan_of(Shape::kTiers, {});
  plan.chunking = {.chunk_elements = 256 << 10, .chunks = 8, .slots = 4};
  const double bytes = 8.0 * (1 << 20);
  const AllreduceShape shape = bytes_of(8 << 20);
  EXPECT_NEAR(cost_of(plan, shape, host, model).memory_s, bytes / 1e9, 1e-9);
  plan.chunking.slots = 5;
  EXPECT_NEAR(cost_of(plan, shape, host, model).memory_s, 1.3 * bytes / 1e9, 1e-9);
  EXPECT_NEAR(cost_of(plan, shape, host, model).seconds, 1.3 * bytes / 1e9 + bytes / 8 / 1e9, 1e-9);
}

TEST(CostModel, ASingleChunkIsReadOnceHoweverLargeItIs) {
  LinkModel model = links(0);
  model.memory = {0, 1e9};
  ClusterShape host;
  host.ranks = host.ranks_a_host = host.least_ranks_a_host = 4;
  Plan plan = plan_of(Shape::kTiers, {});
  plan.chunking = {.chunk_elements = 4 << 20, .chunks = 1, .slots = 2};
  EXPECT_NEAR(cost_of(plan, bytes_of(16 << 20), host, model).memory_s, (16 << 20) / 1e9, 1e-9);
  plan.chunking.chunks = 2;
  EXPECT_NEAR(cost_of(plan, bytes_of(32 << 20), host, model).memory_s, 1.3 * (32 << 20) / 1e9, 1e-9);
}

TEST(CostModel, OnlyWhatRanksOfAHostReduceInItsMemoryTakesThatTime) {
  LinkModel model = links(1);
  model.memory = {1e-5, 1e9};
  const auto memory_s = [&](Shape form, DevicePath device) {
    Plan plan = plan_of(form, {Algorithm::kDirect});
    plan.device = device;
    AllreduceShape shape = bytes_of(8'000'000);
    shape.memory = device == DevicePath::kStaged ? 0 : 1;
    return cost_of(plan, shape, four_hosts(), model).memory_s;
  };
  for (const Shape form : {Shape::kTiers, Shape::kLeaders, Shape::kHosts}) {
    EXPECT_NEAR(memory_s(form, DevicePath::kStaged), 8e6 / 1e9 + 1e-5, 1e-12) << name_of(form);
  }
  EXPECT_EQ(memory_s(Shape::kRanks, DevicePath::kStaged), 0);
  for (const DevicePath device : {DevicePath::kNcclTiers, DevicePath::kNcclHosts, DevicePath::kIpc}) {
    EXPECT_EQ(memory_s(Shape::kTiers, device), 0) << "the GPUs do it";
  }
}

TEST(CostModel, NcclsMessagesAreNoWorkOfTheProcessor) {
  LinkModel model = links(1);
  model.message_s = 1;
  Plan plan = plan_of(Shape::kTiers, {});
  plan.device = DevicePath::kNcclTiers;
  AllreduceShape shape = bytes_of(8'000'000);
  shape.memory = 1;
  EXPECT_EQ(cost_of(plan, shape, four_hosts(), model).work_s, 0);
}

TEST(CostModel, WithinHostsNcclReducesBothHalvesWhileItsShareIsCopied) {
  ClusterShape cluster = four_hosts();
  cluster.ranks_a_host = cluster.least_ranks_a_host = 4;
  cluster.ranks = 16;
  Plan plan = plan_of(Shape::kTiers, {Algorithm::kDirect});
  plan.device = DevicePath::kNcclHosts;
  AllreduceShape shape = bytes_of(8'000'000);
  shape.memory = 1;
  const double host = 2 * 3.0 / 4 * 8e6 / kRate + 2 * kLatency;
  LinkModel model = links(1);
  model.devices = {1e-3, 1e8};
  model.copies = {2e-3, 1e9};
  const double latency = 2 * 1e-3 + 2 * 2e-3;
  EXPECT_NEAR(cost_of(plan, shape, cluster, model).seconds, 2 * 3.0 / 4 * 8e6 / 1e8 + latency + 0.1 * host,
              1e-9);
  model.devices.bytes_per_s = 1e10;
  model.copies.bytes_per_s = 1e8;  // of which each rank copies a quarter
  EXPECT_NEAR(cost_of(plan, shape, cluster, model).seconds, 8e6 / 1e8 / 4 + latency + 0.1 * host, 1e-9);
}

TEST(CostModel, GpusThatReadEachOtherWaitForInputReductionAndResult) {
  LinkModel model = links(0);
  model.ipc = {1e-3, 1e8};
  model.chunk_s = 1e-4;
  ClusterShape host;
  host.ranks = host.ranks_a_host = host.least_ranks_a_host = 4;
  Plan plan = plan_of(Shape::kTiers, {});
  plan.device = DevicePath::kIpc;
  plan.chunking.chunks = 8;
  AllreduceShape shape = bytes_of(8'000'000);
  shape.memory = 1;
  const double alone = 8e6 / 1e8 + 8e6 / 1e8 / 8 + 3 * 1e-3 + 8 * 1e-4;
  EXPECT_NEAR(cost_of(plan, shape, host, model).seconds, alone, 1e-9);
  EXPECT_NEAR(cost_of(plan, shape, host, model).memory_s, alone, 1e-9);
  // Of several hosts, each rank copies its share meanwhile.
  LinkModel several = links(1);
  several.ipc = model.ipc;
  several.chunk_s = model.chunk_s;
  several.copies = {2e-3, 1e9};
  plan.algorithms = {Algorithm::kDirect};
  const double tier = 2 * 3.0 / 4 * 8e6 / kRate + 2 * kLatency + 8 * 1e-4;  // and the work of its chunks
  EXPECT_NEAR(cost_of(plan, shape, four_hosts(), several).seconds, alone + 2 * 2e-3 + 0.1 * tier, 1e-9);
  several.copies.bytes_per_s = 1e7;
  EXPECT_NEAR(cost_of(plan, shape, four_hosts(), several).seconds, 8e6 / 1e7 / 2 + 2 * 2e-3 + 0.1 * tier,
              1e-9);
}

TEST(CostModel, ATierWithoutAnAlgorithmIsExchangedDirectly) {
  const AllreduceShape shape = bytes_of(8'000'000);
  const Plan named = plan_of(Shape::kTiers, {Algorithm::kDirect, Algorithm::kDirect});
  const Plan first = plan_of(Shape::kTiers, {Algorithm::kDirect});
  const double seconds = cost_of(named, shape, two_racks(), links(2)).seconds;
  EXPECT_EQ(cost_of(first, shape, two_racks(), links(2)).seconds, seconds);
}

TEST(ClusterShape, TakesTheMostAndTheLeastOfUnevenHosts) {
  const ClusterShape shape = ClusterShape::of(cluster({2, 3, 1, 2}));
  EXPECT_EQ(shape.hosts, 4U);
  EXPECT_EQ(shape.ranks, 8U);
  EXPECT_EQ(shape.ranks_a_host, 3U);
  EXPECT_EQ(shape.least_ranks_a_host, 1U);
  ASSERT_EQ(shape.tiers.size(), 1U);
  EXPECT_EQ(shape.tiers[0].groups, 4U);
  EXPECT_EQ(shape.tiers[0].hosts_below, 1U);
  EXPECT_EQ(shape.tiers[0].ranks_below, 3U);
  EXPECT_EQ(shape.tiers[0].segments, 1U);
}

TEST(ClusterShape, TakesTheMostOfUnevenRacks) {
  // Two racks of two hosts, and one of one.
  const ClusterShape shape = ClusterShape::of(cluster({2, 2, 2, 2, 2}, {2, 2, 3}));
  EXPECT_EQ(shape.hosts, 5U);
  ASSERT_EQ(shape.tiers.size(), 2U);
  EXPECT_EQ(shape.tiers[0].groups, 2U);
  EXPECT_EQ(shape.tiers[0].hosts_below, 1U);
  EXPECT_EQ(shape.tiers[0].ranks_below, 2U);
  EXPECT_EQ(shape.tiers[1].groups, 3U);
  EXPECT_EQ(shape.tiers[1].hosts_below, 2U);
  EXPECT_EQ(shape.tiers[1].ranks_below, 4U);
  EXPECT_EQ(shape.tiers[1].segments, 2U) << "of its one host, which meets two owners";
}

}  // namespace
}  // namespace ddl
