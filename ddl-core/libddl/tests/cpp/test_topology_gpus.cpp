// What a topology knows of the ranks' GPUs.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "engine/topology_preview.hpp"
#include "support/error.hpp"
#include "topology/discovery.hpp"
#include "topology/facts.hpp"
#include "topology/gpu_place.hpp"

namespace ddl {
namespace {

TEST(GpuPlaces, EverySpellingOfABusIsOne) {
  for (const char* text : {"0000:1b:00.0", "0000:1B:00.0", "00000000:1B:00.0", "0:1b:0.0", "0000:1b:00"}) {
    EXPECT_EQ(normal_bus(text), "0000:1b:00.0") << text;
  }
  EXPECT_EQ(normal_bus("10000:c3:1f.7"), "10000:c3:1f.7");
  for (const char* text :
       {"", "0000", "0000:1b", "0000:1b:00.", "0000:1b:00.0x", "0000:1b:00.0 ", "0000:1bb:00.0",
        "x000:1b:00.0", "-1:1b:00.0", "123456789:1b:00.0", "0000:1b:00.00"}) {
    EXPECT_EQ(normal_bus(text), "") << text;
  }
}

TEST(GpuPlaces, OfARank) {
  EXPECT_EQ(parse_gpu_place("0000:1B:00.0/3"), (GpuPlace{"0000:1b:00.0", 3}));
  EXPECT_EQ(parse_gpu_place("0000:1b:00.0"), (GpuPlace{"0000:1b:00.0", -1}));
  for (const char* text : {"", "/3", "0000:1b:00.0/", "0000:1b:00.0/x", "0000:1b:00.0/-1", "0000:1b:00.0/1/2",
                           "0000:1b:00.0/99999999999"}) {
    EXPECT_FALSE(parse_gpu_place(text)) << text;
  }
}

TEST(TopologyGpus, TheLauncherTellsEachRankItsOwn) {
  EXPECT_FALSE(gather_facts().gpu);
  setenv("DDL_RANK_GPU", "0000:1b:00.0/1", 1);
  const RankFacts facts = gather_facts();
  unsetenv("DDL_RANK_GPU");
  EXPECT_EQ(facts.gpu, (GpuPlace{"0000:1b:00.0", 1}));
  EXPECT_EQ(parse_facts(serialise(facts)).gpu, facts.gpu);
}

/// Two hosts: on `a` two islands, a GPU that two ranks share and a rank without; on `b` the same buses.
Topology two_hosts() {
  const auto rank = [](const std::string& host, const std::string& gpu) {
    return R"({"host":")" + host + R"(","gpu":")" + gpu + R"("})";
  };
  return preview_topology(R"({"ranks":[)" + rank("a", "0000:04:00.0/0") + "," + rank("a", "0000:05:00.0/0") +
                          "," + rank("a", "0000:06:00.0/1") + "," + rank("a", "0000:06:00.0/1") + "," +
                          rank("a", "") + "," + rank("b", "0000:04:00.0") + "," +
                          rank("b", "0000:06:00.0/1") + "," + rank("c", "") + "]}");
}

TEST(TopologyGpus, WhoSharesAGpuOrAnIsland) {
  const Topology topology = two_hosts();
  EXPECT_EQ(topology.gpu_of(2), (GpuPlace{"0000:06:00.0", 1}));
  EXPECT_EQ(topology.gpu_of(4), GpuPlace{});
  EXPECT_TRUE(topology.share_gpu(2, 3));
  EXPECT_FALSE(topology.share_gpu(0, 1));
  EXPECT_FALSE(topology.share_gpu(4, 7));  // neither has one
  EXPECT_FALSE(topology.share_gpu(3, 6));  // the same place in another host
  EXPECT_TRUE(topology.share_island(0, 1));
  EXPECT_TRUE(topology.share_island(2, 3));
  EXPECT_FALSE(topology.share_island(1, 2));
  EXPECT_FALSE(topology.share_island(3, 6));
  EXPECT_FALSE(topology.share_island(4, 5));
}

TEST(TopologyGpus, EmulatedHostsShareTheGpusOfTheirMachine) {
  setenv("DDL_EMULATE_HOSTS", "1,1", 1);
  setenv("DDL_RANK_GPU", "0000:06:00.0/0", 1);
  const Topology topology = discover({local_facts(0, 2), local_facts(1, 2)}, {});
  unsetenv("DDL_EMULATE_HOSTS");
  unsetenv("DDL_RANK_GPU");
  ASSERT_EQ(topology.hosts().size(), 2U);
  EXPECT_TRUE(topology.share_gpu(0, 1));
  EXPECT_FALSE(topology.share_island(0, 1));  // as hosts they are joined by the network
}

TEST(TopologyGpus, AreToldOnlyWhereTheyAre) {
  const Topology topology = two_hosts();
  const std::string json = topology.to_json();
  EXPECT_NE(json.find(R"("gpus":["0000:04:00.0","0000:05:00.0","0000:06:00.0","0000:06:00.0",null],)"
                      R"("islands":[0,0,1,1,-1]})"),
            std::string::npos)
      << json;
  EXPECT_NE(json.find(R"({"name":"c","ranks":[7],"numa_nodes":[-1],"packages":[-1]})"), std::string::npos)
      << json;
  const std::string text = topology.to_text();
  EXPECT_NE(text.find("host a: ranks 0-4; NVLink island 0: ranks 0, 1; NVLink island 1: ranks 2, 3; GPU "
                      "0000:06:00.0 shared: ranks 2, 3\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("host b: ranks 5, 6; GPU without NVLink: rank 5; NVLink island 1: rank 6\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("host c: rank 7\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace ddl
