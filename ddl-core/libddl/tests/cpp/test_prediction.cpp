// Described clusters: how they are read, what they cost, and how they are fitted to measured steps.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "simulate/calibration.hpp"
#include "simulate/described_cluster.hpp"
#include "simulate/forecast.hpp"
#include "simulate/prediction.hpp"
#include "support/error.hpp"
#include "support/quantity.hpp"

namespace ddl {
namespace {

std::string tier(const std::string& name, const std::string& members, const std::string& bandwidth,
                 const std::string& sharing) {
  return R"({"name": ")" + name + R"(", "members": )" + members + R"(, "bandwidth": ")" + bandwidth +
         R"(", "latency": "1 us", "shared_by": ")" + sharing + "\"}";
}

std::string cluster_text(const std::string& tiers,
                         const std::string& more = R"("device": {"reduce": "1 TB/s"})") {
  return R"({"version": 1, "tiers": [)" + tiers + "], " + more + "}";
}

TEST(Quantity, NumbersWithUnits) {
  EXPECT_DOUBLE_EQ(parse_quantity("12.5 GB/s", Quantity::kBytesPerSecond).value(), 12.5e9);
  EXPECT_DOUBLE_EQ(parse_quantity("100Gbit/s", Quantity::kBytesPerSecond).value(), 12.5e9);
  EXPECT_DOUBLE_EQ(parse_quantity("5 us", Quantity::kSeconds).value(), 5e-6);
  EXPECT_DOUBLE_EQ(parse_quantity("1GiB", Quantity::kBytes).value(), 1 << 30);
  for (const char* text :
       {"", "5", "us", "-1 s", "nan s", "inf s", "1 s ", " 1 s", "1e999 s", "5 Gb/s", "0x1 s"}) {
    EXPECT_FALSE(parse_quantity(text, Quantity::kSeconds)) << text;
  }
}

TEST(DescribedCluster, AJobFillsHostsOneAfterTheOther) {
  const auto cluster = DescribedCluster::parse(cluster_text(
      tier("socket", "2", "75 GB/s", "member") + "," + tier("host", "2", "64 GB/s", "member") + "," +
      tier("rack", "[3, 2]", "10 GB/s", "member") + "," + tier("all", "2", "10 GB/s", "host")));
  EXPECT_EQ(cluster.ranks(), 20u);
  EXPECT_EQ(cluster.host_ranks(), (std::vector<std::size_t>{4, 4, 4, 4, 4}));
  const JobShape pair = cluster.job(2);
  EXPECT_EQ(pair.tiers, std::vector<std::size_t>{0}) << "tiers without a choice are left out";
  EXPECT_EQ(pair.hosts, 1u);
  const JobShape three = cluster.job(12);
  EXPECT_EQ(three.tiers, (std::vector<std::size_t>{0, 1, 2}));
  EXPECT_EQ(three.cluster.tiers[2].groups, 3u);
  EXPECT_EQ(three.cluster.tiers[2].ranks_below, 4u);
  const JobShape full = cluster.job(20);
  EXPECT_EQ(full.hosts, 5u);
  ASSERT_EQ(full.model.tiers.size(), 4u);
  // The smaller rack has an uplink for each of its two hosts.
  EXPECT_DOUBLE_EQ(full.model.tiers[3].bytes_per_s, 20e9);
  EXPECT_DOUBLE_EQ(full.model.tiers[3].by_one_rank, 0.5);
}

TEST(DescribedCluster, SharingDecidesWhatAMemberHas) {
  const auto figures = [](const std::string& sharing) {
    const auto text =
        cluster_text(tier("host", "4", "1 GB/s", "member") + "," + tier("all", "3", "1 GB/s", sharing));
    return DescribedCluster::parse(text).job(12).model.tiers[1];
  };
  EXPECT_DOUBLE_EQ(figures("member").bytes_per_s, 1e9);
  EXPECT_DOUBLE_EQ(figures("rank").bytes_per_s, 4e9);
  EXPECT_DOUBLE_EQ(figures("rank").by_one_rank, 0.25);
  EXPECT_DOUBLE_EQ(figures("pair").bytes_per_s, 2e9);
  EXPECT_DOUBLE_EQ(figures("pair").to_one_peer, 0.5);
  EXPECT_DOUBLE_EQ(figures("tier").bytes_per_s, 1e9 / 3);
}

TEST(DescribedCluster, MemoryIsTheInnermostTier) {
  const auto cluster = DescribedCluster::parse(cluster_text(
      tier("host", "[3, 2, 2, 1]", "8 GB/s", "memory") + "," + tier("rack", "4", "1 GB/s", "member"),
      "\"name\": \"m\""));
  const JobShape job = cluster.job(8);
  EXPECT_EQ(job.cluster.hosts, 4u);
  EXPECT_EQ(job.cluster.ranks_a_host, 3u);
  EXPECT_EQ(job.tiers, std::vector<std::size_t>{1});
  EXPECT_DOUBLE_EQ(job.model.memory.bytes_per_s, 8e9);
}

TEST(DescribedCluster, ErrorsNameThePlace) {
  const std::string host = tier("host", "2", "1 GB/s", "member");
  const std::pair<std::string, const char*> cases[] = {
      {"", "no JSON"},
      {"[]", "no object"},
      {"{\"version\": 2}", "/version"},
      {cluster_text(tier("host", "0", "1 GB/s", "member")), "/tiers/0/members"},
      {cluster_text(tier("host", "2", "1 Gb/s", "member")), "/tiers/0/bandwidth"},
      {cluster_text(tier("host", "2", "1 GB/s", "host")), "/tiers/0/shared_by"},
      {cluster_text(host + "," + tier("all", "2", "1 GB/s", "memory")), "/tiers/1/shared_by"},
      {cluster_text(host + "," + host), "/tiers/1/name"},
      {cluster_text(tier("node", "2", "1 GB/s", "member")), "no tier is named \"host\""},
      {cluster_text(tier("host", "[2, 2]", "1 GB/s", "member")), "/tiers/0/members"},
      {cluster_text(host + "," + tier("all", "99999", "1 GB/s", "member")), "/tiers/0/members"},
      {cluster_text(host, "\"name\": \"x\""), "'device' is missing"},
      {cluster_text(host, R"("device": {"reduce": 0})"), "/device/reduce"},
      {cluster_text(host, R"("device": {"reduce": "1 GB/s"}, "overheads": {"overlap": 2})"),
       "/overheads/overlap"},
      {cluster_text(host, R"("device": {"reduce": "1 GB/s"}, "step": {"compute": "1 h"})"), "/step/compute"},
      {cluster_text(host, R"("device": {"reduce": "1 GB/s"}, "extra": 1)"), "unknown key"},
  };
  for (const auto& [text, place] : cases) {
    try {
      DescribedCluster::parse(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(place), std::string::npos) << error.what();
      EXPECT_EQ(error.code(), DDL_ERR_ARGUMENT);
    }
  }
}

TEST(Forecast, TheSlowTierBoundsAndIsNamed) {
  const auto cluster = DescribedCluster::parse(cluster_text(tier("host", "4", "100 GB/s", "member") + "," +
                                                            tier("rack", "4", "10 GB/s", "member") + "," +
                                                            tier("all", "2", "1 GB/s", "member")));
  const Forecast all = forecast(cluster, 1'000'000'000, 32, Method::kPlanned);
  EXPECT_EQ(all.bound, "all");
  // Two groups: the whole vector over a link of 1 GB/s.
  EXPECT_NEAR(all.cost.seconds, 1, 0.1);
  EXPECT_EQ(forecast(cluster, 1'000'000'000, 16, Method::kPlanned).bound, "rack");
  EXPECT_EQ(forecast(cluster, 64, 32, Method::kRing).bound, "processor");
  EXPECT_EQ(forecast(cluster, 1'000'000'000, 1, Method::kPlanned).cost.seconds, 0);
  // A ring passes every link with all of the vector, twice but for one part.
  EXPECT_NEAR(forecast(cluster, 1'000'000'000, 32, Method::kRing).cost.seconds, 2 * 31 / 32.0, 0.01);
}

TEST(Forecast, TiersInTurnTakeLongerThanAtOnce) {
  const std::string tiers =
      tier("host", "4", "2 GB/s", "member") + "," + tier("all", "4", "2 GB/s", "member");
  const auto at_once = DescribedCluster::parse(cluster_text(tiers));
  const auto in_turn = DescribedCluster::parse(
      cluster_text(tiers, R"("device": {"reduce": "1 TB/s"}, "overheads": {"overlap": 0})"));
  const double one = forecast(at_once, 1 << 30, 16, Method::kPlanned).cost.seconds;
  const double other = forecast(in_turn, 1 << 30, 16, Method::kPlanned).cost.seconds;
  EXPECT_NEAR(other / one, 2, 0.15);
}

TEST(Calibration, FindsTheEfficienciesThatMadeTheSteps) {
  const std::string tiers =
      tier("host", "4", "100 GB/s", "member") + "," + tier("all", "4", "10 GB/s", "member");
  const std::string more = R"("device": {"reduce": "1 TB/s"}, "step": {"compute": "300 ms"})";
  auto truth = DescribedCluster::parse(cluster_text(tiers, more));
  truth.tiers[0].efficiency = 0.2;
  truth.tiers[1].efficiency = 0.6;
  const auto step = [&](std::size_t ranks) {
    return step_seconds(truth, forecast(truth, 1'000'000'000, ranks, Method::kPlanned));
  };
  StepTimes times{1'000'000'000, {{1, 0.3, true}, {4, step(4), true}, {8, step(8), true}, {16, 99, false}}};
  auto fitted = DescribedCluster::parse(cluster_text(tiers, more));
  const Calibration calibration = calibrate(fitted, times);
  EXPECT_NEAR(calibration.inside_efficiency.value(), 0.2, 1e-4);
  EXPECT_NEAR(calibration.network_efficiency.value(), 0.6, 1e-4);
  EXPECT_NEAR(step_seconds(fitted, forecast(fitted, 1'000'000'000, 16, Method::kPlanned)), step(16), 1e-3)
      << "the step that is not to be fitted has no part in it";
}

TEST(Prediction, WhatCannotBeAskedIsRefused) {
  const std::string text = cluster_text(tier("host", "4", "100 GB/s", "member"));
  EXPECT_THROW(predict_json(text, "", 0, {}), Error) << "no bytes";
  EXPECT_THROW(predict_json(text, "", 8, {5}), Error);
  EXPECT_THROW(predict_json(text, "", 8, {0}), Error);
  EXPECT_THROW(predict_json(text, R"({"version": 1, "bytes": 8, "steps": [{"ranks": 2, "time": 1}]})", 8, {}),
               Error)
      << "no step of one rank";
  EXPECT_NE(predict_json(text, "", 8, {}).find("\"predictions\""), std::string::npos);
}

}  // namespace
}  // namespace ddl
