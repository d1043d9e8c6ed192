#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "support/error.hpp"
#include "topology/topology.hpp"

namespace ddl {
namespace {

/// host[i] is the host of rank i.
std::vector<Placement> place(const std::string& host) {
  std::vector<Placement> placements;
  for (const char c : host) placements.push_back({std::string(1, c), std::string("key/") + c});
  return placements;
}

/// Sets of hosts that share a rack, by name.
std::vector<std::string> racks_of(const Topology& topology) {
  std::vector<std::string> racks;
  for (const Group& rack : topology.root().children) {
    std::string hosts;
    for (const int rank : rack.ranks) hosts += topology.host_name_of(rank);
    std::sort(hosts.begin(), hosts.end());
    hosts.erase(std::unique(hosts.begin(), hosts.end()), hosts.end());
    racks.push_back(hosts);
  }
  std::sort(racks.begin(), racks.end());
  return racks;
}

TEST(Topology, OneRank) {
  const Topology topology = Topology::build(place("a"), {});
  EXPECT_EQ(topology.size(), 1);
  EXPECT_EQ(topology.hosts().size(), 1u);
  EXPECT_EQ(topology.tiers(), (std::vector<std::string>{"host"}));
}

TEST(Topology, UnevenHosts) {
  const Topology topology = Topology::build(place("aabab"), {});
  ASSERT_EQ(topology.hosts().size(), 2u);
  EXPECT_EQ(topology.hosts()[0].ranks, (std::vector<int>{0, 1, 3}));
  EXPECT_EQ(topology.hosts()[1].ranks, (std::vector<int>{2, 4}));
  EXPECT_EQ(topology.local_rank_of(3), 2);
  EXPECT_EQ(topology.host_of(4), 1);
  EXPECT_EQ(topology.tiers(), (std::vector<std::string>{"host", "cluster"}));
  EXPECT_EQ(topology.describe_rank(3), "rank 3 (host a)");
}

TEST(Topology, DimsMakeRacksAndAisles) {
  const Topology topology = Topology::build(place("aabbccddeeffgghh"), {2, 2, 2, 2});
  EXPECT_EQ(topology.tiers(), (std::vector<std::string>{"host", "rack", "aisle", "cluster"}));
  EXPECT_EQ(topology.to_json().substr(topology.to_json().find("\"tree\"")),
            "\"tree\":[[[[0,1],[2,3]],[[4,5],[6,7]]],[[[8,9],[10,11]],[[12,13],[14,15]]]]}");
}

TEST(Topology, TiersOfOneAreLeftOut) {
  EXPECT_EQ(Topology::build(place("aabb"), {2, 2, 1, 1}).tiers(),
            (std::vector<std::string>{"host", "cluster"}));
  EXPECT_EQ(Topology::build(place("aaaa"), {4, 1, 1, 1}).tiers(), (std::vector<std::string>{"host"}));
}

TEST(Topology, OneHostMayHoldSeveralGroups) {
  const Topology topology = Topology::build(place("aaaa"), {2, 2});
  EXPECT_EQ(topology.hosts().size(), 1u);
  EXPECT_EQ(topology.local_rank_of(3), 3);
  EXPECT_EQ(topology.root().children.size(), 2u);
}

TEST(Topology, DimsThatDoNotFitAHostNameIt) {
  try {
    Topology::build(place("aaab"), {2, 2});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), DDL_ERR_OPTION);
    EXPECT_NE(std::string(error.what()).find("host a has 3"), std::string::npos) << error.what();
  }
}

TEST(Topology, NumberingOfRanksWithinHostsDoesNotMatter) {
  std::string hosts = "aaabbbcccddd";
  const auto expected = racks_of(Topology::build(place(hosts), {3, 2, 2}));
  EXPECT_EQ(expected, (std::vector<std::string>{"ab", "cd"}));
  // Any order in which the hosts first appear as a, b, c, d.
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    std::string rest = "aabbccdd";
    std::shuffle(rest.begin(), rest.end(), random);
    EXPECT_EQ(racks_of(Topology::build(place("abcd" + rest), {3, 2, 2})), expected) << rest;
  }
}

TEST(Topology, RanksAreListedShortly) {
  EXPECT_EQ(Topology::describe_ranks({4}), "rank 4");
  EXPECT_EQ(Topology::describe_ranks({4, 0}), "ranks 0, 4");
  EXPECT_EQ(Topology::describe_ranks({0, 1}), "ranks 0, 1");
  EXPECT_EQ(Topology::describe_ranks({3, 1, 2, 7, 9, 8}), "ranks 1-3, 7-9");
}

TEST(Topology, JsonEscapesHostNames) {
  const std::string json = Topology::build({{"a\"\\\n\xc3\xa9", "k"}}, {}).to_json();
  EXPECT_NE(json.find("\"a\\\"\\\\\\u000a\\u00c3\\u00a9\""), std::string::npos) << json;
}

TEST(Topology, ThisProcessHasAPlacement) {
  const Placement here = local_placement();
  EXPECT_FALSE(here.host_name.empty());
  EXPECT_EQ(here.host_key, local_placement().host_key);
}

}  // namespace
}  // namespace ddl
