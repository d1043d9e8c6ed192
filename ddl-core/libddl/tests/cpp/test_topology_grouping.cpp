// Groups of hosts by bandwidth, on described networks whose groups are known.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "topology/grouping.hpp"

namespace ddl {
namespace {

using Matrix = std::vector<std::vector<double>>;
using Groups = std::vector<std::vector<int>>;

/// rack[i] is the rack of host i.
Matrix network(const std::vector<int>& rack, double inside, double across, double noise = 0,
               unsigned seed = 1) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> factor(1 - noise, 1 + noise);
  Matrix mbit(rack.size(), std::vector<double>(rack.size(), 0));
  for (std::size_t i = 0; i < rack.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      mbit[i][j] = mbit[j][i] = (rack[i] == rack[j] ? inside : across) * factor(random);
    }
  }
  return mbit;
}

Groups expected(const std::vector<int>& rack) {
  Groups groups;
  std::vector<int> numbers;
  for (std::size_t i = 0; i < rack.size(); ++i) {
    const auto found = std::find(numbers.begin(), numbers.end(), rack[i]);
    if (found == numbers.end()) {
      numbers.push_back(rack[i]);
      groups.push_back({static_cast<int>(i)});
    } else {
      groups[static_cast<std::size_t>(found - numbers.begin())].push_back(static_cast<int>(i));
    }
  }
  return groups;
}

Groups one_group(int hosts) {
  std::vector<int> all(static_cast<std::size_t>(hosts));
  std::iota(all.begin(), all.end(), 0);
  return {all};
}

TEST(TopologyGrouping, FewHosts) {
  EXPECT_EQ(group_hosts_by_bandwidth({}), Groups{});
  EXPECT_EQ(group_hosts_by_bandwidth({{0}}), (Groups{{0}}));
  EXPECT_EQ(group_hosts_by_bandwidth({{0, 9}, {9, 0}}), (Groups{{0, 1}}));
}

TEST(TopologyGrouping, RacksAreFound) {
  for (const std::vector<int>& rack : {std::vector<int>{0, 0, 1, 1},
                                       {0, 1, 0, 1},
                                       {0, 0, 1},
                                       {0, 0, 0, 1},
                                       {0, 1, 2, 0, 1, 2},
                                       {0, 0, 1, 1, 2, 2, 3, 3},
                                       {0, 1, 1, 1, 1, 1, 1, 1},
                                       {0, 0, 0, 0, 0, 1, 1, 2}}) {
    EXPECT_EQ(group_hosts_by_bandwidth(network(rack, 956, 96)), expected(rack));
  }
}

TEST(TopologyGrouping, RacksAreFoundThroughNoise) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const int racks = 2 + static_cast<int>(random() % 4);
    std::vector<int> rack;
    for (int r = 0; r < racks; ++r) {
      for (std::size_t n = 2 + random() % 5; n > 0; --n) rack.push_back(r);
    }
    std::shuffle(rack.begin(), rack.end(), random);
    EXPECT_EQ(group_hosts_by_bandwidth(network(rack, 1000, 300, 0.25, seed)), expected(rack)) << seed;
  }
}

TEST(TopologyGrouping, FlatNetworksAreOneGroup) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    const int hosts = 2 + static_cast<int>(seed % 15);
    const std::vector<int> rack(static_cast<std::size_t>(hosts), 0);
    EXPECT_EQ(group_hosts_by_bandwidth(network(rack, 1000, 1000, 0.2, seed)), one_group(hosts)) << seed;
  }
  // One host a rack is flat as well.
  EXPECT_EQ(group_hosts_by_bandwidth(network({0, 1, 2, 3, 4}, 1000, 100)), one_group(5));
}

TEST(TopologyGrouping, ASmallDifferenceMakesNoGroups) {
  EXPECT_EQ(group_hosts_by_bandwidth(network({0, 0, 0, 1, 1, 1}, 1000, 720)), one_group(6));
  EXPECT_EQ(group_hosts_by_bandwidth(network({0, 0, 0, 1, 1, 1}, 1000, 600)), expected({0, 0, 0, 1, 1, 1}));
}

TEST(TopologyGrouping, OddFiguresOfSinglePairsChangeNothing) {
  const std::vector<int> rack = {0, 0, 0, 0, 1, 1, 1, 1};
  Matrix mbit = network(rack, 1000, 100, 0.1);
  mbit[0][1] = mbit[1][0] = 250;  // disturbed
  mbit[2][6] = mbit[6][2] = 300;  // lucky
  EXPECT_EQ(group_hosts_by_bandwidth(mbit), expected(rack));
  Matrix flat = network(std::vector<int>(8, 0), 1000, 1000, 0.1);
  flat[3][5] = flat[5][3] = 300;
  EXPECT_EQ(group_hosts_by_bandwidth(flat), one_group(8));
}

TEST(TopologyGrouping, TheClearestOfSeveralTiersIsTaken) {
  // Two aisles of two racks of two hosts.
  Matrix mbit(8, std::vector<double>(8, 0));
  for (std::size_t i = 0; i < 8; ++i) {
    for (std::size_t j = 0; j < 8; ++j) mbit[i][j] = i / 2 == j / 2 ? 1000 : i / 4 == j / 4 ? 500 : 50;
  }
  EXPECT_EQ(group_hosts_by_bandwidth(mbit), expected({0, 0, 0, 0, 1, 1, 1, 1}));
}

TEST(TopologyGrouping, NumberingOfHostsDoesNotMatter) {
  const std::vector<int> rack = {0, 0, 0, 1, 1, 2, 2, 2, 2};
  const Matrix mbit = network(rack, 1000, 300, 0.2, 5);
  std::vector<std::size_t> order(rack.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937 random(11);
  for (int i = 0; i < 100; ++i) {
    std::shuffle(order.begin(), order.end(), random);
    Matrix shuffled = mbit;
    std::vector<int> renamed;
    for (std::size_t a = 0; a < order.size(); ++a) {
      renamed.push_back(rack[order[a]]);
      for (std::size_t b = 0; b < order.size(); ++b) shuffled[a][b] = mbit[order[a]][order[b]];
    }
    EXPECT_EQ(group_hosts_by_bandwidth(shuffled), expected(renamed));
  }
}

TEST(TopologyGrouping, WhatWasNotMeasuredDecidesNothing) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(group_hosts_by_bandwidth(Matrix(4, std::vector<double>(4, 0))), one_group(4));
  Matrix mbit = network({0, 0, 0, 1, 1, 1}, 1000, 100);
  mbit[0][1] = mbit[1][0] = nan;
  mbit[2][3] = mbit[3][2] = 0;
  EXPECT_EQ(group_hosts_by_bandwidth(mbit), expected({0, 0, 0, 1, 1, 1}));
  // Nothing is known between the two halves.
  EXPECT_EQ(group_hosts_by_bandwidth(network({0, 0, 1, 1}, 1000, nan)), one_group(4));
}

}  // namespace
}  // namespace ddl
