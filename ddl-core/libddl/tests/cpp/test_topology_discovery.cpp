// The tree that discover() makes of facts: every source, their order, and that ranks may be numbered anyhow.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <random>
#include <set>

#include "support/error.hpp"
#include "topology/discovery.hpp"
#include "topology/emulation.hpp"
#include "topology/facts.hpp"

namespace ddl {
namespace {

RankFacts on(const std::string& host) {
  RankFacts facts;
  facts.host_name = host;
  facts.host_key = facts.machine_key = "key of " + host;
  return facts;
}

std::vector<std::string> texts_of(const std::vector<RankFacts>& ranks) {
  std::vector<std::string> texts;
  for (const RankFacts& facts : ranks) texts.push_back(serialise(facts));
  return texts;
}

/// Facts of ranks on the named hosts.
std::vector<std::string> place(const std::vector<std::string>& hosts) {
  std::vector<RankFacts> ranks;
  for (const std::string& host : hosts) ranks.push_back(on(host));
  return texts_of(ranks);
}

TopologyRequest by_dims(std::vector<int> dims) { return {std::move(dims), "", "", std::nullopt}; }
TopologyRequest by_file(std::string text) { return {{}, "site.json", std::move(text), std::nullopt}; }

std::string tree_of(const Topology& topology) {
  const std::string json = topology.to_json();
  return json.substr(json.find("\"tree\":") + 7, json.size() - json.find("\"tree\":") - 8);
}

/// The tree with ranks replaced by what identifies them, groups sorted: what must not depend on numbering.
std::string canonical(const Group& group, const std::vector<std::string>& name) {
  if (group.leaf()) return name[static_cast<std::size_t>(group.ranks[0])];
  std::vector<std::string> parts;
  for (const Group& child : group.children) parts.push_back(canonical(child, name));
  std::sort(parts.begin(), parts.end());
  std::string out = group.name + "[";
  for (const std::string& part : parts) out += part + " ";
  return out + "]";
}

int depth_of(const Group& group) {
  int depth = 0;
  for (const Group& child : group.children) {
    const int here = 1 + depth_of(child);
    EXPECT_TRUE(depth == 0 || depth == here) << "branches of unequal depth";
    depth = here;
  }
  return depth;
}

void check_group(const Topology& topology, const Group& group, int tier) {
  EXPECT_TRUE(std::is_sorted(group.ranks.begin(), group.ranks.end()));
  if (tier < 0) {
    EXPECT_TRUE(group.leaf());
    EXPECT_EQ(group.ranks.size(), 1u);
    return;
  }
  std::vector<int> below;
  int lowest = -1;
  for (const Group& child : group.children) {
    EXPECT_GT(child.ranks.front(), lowest);
    lowest = child.ranks.front();
    below.insert(below.end(), child.ranks.begin(), child.ranks.end());
    check_group(topology, child, tier - 1);
  }
  std::sort(below.begin(), below.end());
  EXPECT_EQ(below, group.ranks);
  if (tier > 0) return;
  for (const int rank : group.ranks) EXPECT_EQ(topology.host_of(rank), topology.host_of(group.ranks[0]));
}

/// What every topology promises.
void check_invariants(const Topology& topology) {
  const auto tiers = static_cast<int>(topology.tiers().size());
  EXPECT_EQ(depth_of(topology.root()), tiers);
  EXPECT_EQ(topology.links().size(), topology.tiers().size());
  EXPECT_EQ(topology.tiers()[0], "host");
  EXPECT_EQ(std::set<std::string>(topology.tiers().begin(), topology.tiers().end()).size(),
            topology.tiers().size());
  std::vector<int> all(static_cast<std::size_t>(topology.size()));
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(topology.root().ranks, all);
  check_group(topology, topology.root(), tiers - 1);
  if (tiers > 1) {
    EXPECT_GT(topology.root().children.size(), 1u);
  }
  for (const Host& host : topology.hosts()) {
    for (std::size_t i = 0; i < host.ranks.size(); ++i) {
      EXPECT_EQ(topology.local_rank_of(host.ranks[i]), static_cast<int>(i));
    }
    EXPECT_EQ(host.numa_nodes.size(), host.ranks.size());
  }
}

std::string error_of(const std::vector<std::string>& facts, const TopologyRequest& request) {
  try {
    discover(facts, request);
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "accepted";
  return "";
}

constexpr const char* kTwoRacks = R"({"version": 1,
  "tiers": [{"bandwidth_mbit": 80000}, {"name": "switch", "bandwidth_mbit": 1000, "latency_us": 20},
            {"bandwidth_mbit": 200, "latency_us": 50}],
  "groups": [{"name": "r1", "hosts": ["h[1-2]"]}, {"name": "r2", "hosts": ["h[3-9]"]}]})";

TEST(TopologyDiscovery, HostsOnly) {
  const Topology one = discover(place({"a"}), {});
  EXPECT_EQ(tree_of(one), "[0]");
  check_invariants(one);
  const Topology uneven = discover(place({"a", "b", "a", "a"}), {});
  EXPECT_EQ(tree_of(uneven), "[[0,2,3],[1]]");
  EXPECT_EQ(uneven.tiers(), (std::vector<std::string>{"host", "cluster"}));
  EXPECT_EQ(uneven.source(), "hosts");
  EXPECT_EQ(uneven.root().children[0].name, "a");
  check_invariants(uneven);
}

TEST(TopologyDiscovery, HostsAreToldApartByMemoryNotByName) {
  RankFacts a = on("a");
  RankFacts container = on("a");
  container.host_key = "another /dev/shm";
  const Topology topology = discover(texts_of({a, container, a}), by_file(R"({"version":1,"hosts":["a"]})"));
  EXPECT_EQ(tree_of(topology), "[[0,2],[1]]");
  check_invariants(topology);
}

TEST(TopologyDiscovery, DimsTakeHostsInNaturalOrder) {
  const Topology topology = discover(place({"h10", "h9", "h2", "h1"}), by_dims({1, 2, 2}));
  EXPECT_EQ(tree_of(topology), "[[[0],[1]],[[2],[3]]]");
  EXPECT_EQ(topology.source(), "-mode");
  check_invariants(topology);
}

TEST(TopologyDiscovery, DimsTakeHostsInTheGivenOrder) {
  std::vector<RankFacts> ranks;
  const std::vector<std::string> order = {"h3", "h1", "h4", "h2"};
  for (const char* host : {"h1", "h2", "h3", "h4"}) {
    ranks.push_back(on(host));
    ranks.back().order =
        HostOrder{static_cast<int>(std::find(order.begin(), order.end(), host) - order.begin()), 77};
  }
  EXPECT_EQ(tree_of(discover(texts_of(ranks), by_dims({1, 2, 2}))), "[[[0],[2]],[[1],[3]]]");
  EXPECT_TRUE(discover(texts_of(ranks), by_dims({1, 2, 2})).notes().empty());

  ranks[2].order = HostOrder{-1, 77};
  const Topology unlisted = discover(texts_of(ranks), by_dims({1, 2, 2}));
  EXPECT_EQ(tree_of(unlisted), "[[[0],[1]],[[2],[3]]]");
  ASSERT_EQ(unlisted.notes().size(), 1u);
  EXPECT_NE(unlisted.notes()[0].find("host h3 is not in it"), std::string::npos);

  ranks[2].order = HostOrder{0, 78};
  EXPECT_NE(discover(texts_of(ranks), by_dims({1, 2, 2})).notes().at(0).find("rank 2 has another list"),
            std::string::npos);
  ranks[2].order.reset();
  EXPECT_EQ(discover(texts_of(ranks), by_dims({1, 2, 2})).notes().size(), 1u);
  ranks[0].order.reset();
  EXPECT_EQ(discover(texts_of(ranks), by_dims({1, 2, 2})).notes().size(), 1u);
}

TEST(TopologyDiscovery, DimsMakeAnyNumberOfTiers) {
  std::vector<std::string> hosts;
  for (int i = 0; i < 32; ++i) hosts.push_back("h" + std::to_string(i));
  const Topology topology = discover(place(hosts), by_dims({1, 2, 2, 2, 2, 2}));
  EXPECT_EQ(topology.tiers(),
            (std::vector<std::string>{"host", "rack", "aisle", "tier 4", "tier 5", "cluster"}));
  check_invariants(topology);
}

TEST(TopologyDiscovery, DimsSplitAHostAlongItsSockets) {
  std::vector<RankFacts> ranks(4, on("a"));
  for (std::size_t i = 0; i < 4; ++i) ranks[i].position = {static_cast<int>(i % 2), static_cast<int>(i % 2)};
  const Topology topology = discover(texts_of(ranks), by_dims({2, 2}));
  EXPECT_EQ(tree_of(topology), "[[0,2],[1,3]]");
  EXPECT_EQ(topology.hosts().size(), 1u);
  EXPECT_EQ(topology.numa_node_of(3), 1);
  check_invariants(topology);
}

TEST(TopologyDiscovery, DimsThatDoNotFitAHostNameIt) {
  const std::string error = error_of(place({"a", "a", "a", "b"}), by_dims({2, 2}));
  EXPECT_NE(error.find("[ERROR DDL-1-2] -mode says 2 ranks a host, but host a has 3; in -mode"),
            std::string::npos)
      << error;
}

TEST(TopologyDiscovery, FileGroupsHosts) {
  const Topology topology = discover(place({"h1", "h3", "h2", "h1", "h4"}), by_file(kTwoRacks));
  EXPECT_EQ(tree_of(topology), "[[[0,3],[2]],[[1],[4]]]");
  EXPECT_EQ(topology.source(), "topology file site.json");
  EXPECT_EQ(topology.tiers(), (std::vector<std::string>{"host", "switch", "cluster"}));
  EXPECT_EQ(topology.links()[0].bandwidth_mbit, 80000);
  EXPECT_EQ(topology.links()[1].latency_us, 20);
  EXPECT_EQ(topology.links()[2].bandwidth_mbit, 200);
  EXPECT_EQ(topology.root().children[1].name, "r2");
  check_invariants(topology);
}

TEST(TopologyDiscovery, ATierOfTheFileThatTheJobDoesNotUseIsLeftOut) {
  const Topology inside = discover(place({"h1", "h2"}), by_file(kTwoRacks));
  EXPECT_EQ(inside.tiers(), (std::vector<std::string>{"host", "switch"}));
  EXPECT_EQ(inside.links()[1].bandwidth_mbit, 1000);
  check_invariants(inside);
  // One host a rack: what crosses the racks also crosses the hosts' links.
  const Topology across = discover(place({"h1", "h9"}), by_file(kTwoRacks));
  EXPECT_EQ(across.tiers(), (std::vector<std::string>{"host", "cluster"}));
  EXPECT_EQ(across.links()[1].bandwidth_mbit, 200);
  EXPECT_EQ(across.links()[1].latency_us, 50);
  check_invariants(across);
}

TEST(TopologyDiscovery, BranchesOfUnequalDepth) {
  const Topology topology =
      discover(place({"a", "b", "c", "d", "e"}),
               by_file(R"({"version": 1, "hosts": ["e"], "groups": [{"name": "shallow", "hosts": ["a", "b"]},
                  {"name": "deep", "groups": [{"hosts": ["c"]}, {"hosts": ["d"]}]}]})"));
  EXPECT_EQ(tree_of(topology), "[[[[0],[1]]],[[[2]],[[3]]],[[[4]]]]");
  EXPECT_EQ(topology.tiers(), (std::vector<std::string>{"host", "rack", "aisle", "cluster"}));
  check_invariants(topology);
}

TEST(TopologyDiscovery, NamesWithAndWithoutDomain) {
  EXPECT_EQ(tree_of(discover(place({"h1.site.org", "H2.site.org", "h3.site.org", "h4.site.org"}),
                             by_file(kTwoRacks))),
            "[[[0],[1]],[[2],[3]]]");
}

TEST(TopologyDiscovery, TopologyConfIsAFileToo) {
  const Topology topology = discover(
      place({"tux0", "tux3", "tux1"}),
      by_file("SwitchName=s0 Nodes=tux[0-1]\nSwitchName=s1 Nodes=tux[2-3]\nSwitchName=s2 Switches=s[0-1]\n"));
  EXPECT_EQ(tree_of(topology), "[[[0],[2]],[[1]]]");
  EXPECT_EQ(topology.root().name, "s2");
  EXPECT_EQ(topology.root().children[1].name, "s1");
  check_invariants(topology);
}

TEST(TopologyDiscovery, FileErrorsAreErrors) {
  EXPECT_NE(error_of(place({"x"}), by_file(kTwoRacks)).find("topology file site.json"), std::string::npos);
  EXPECT_NE(error_of(place({"x"}), by_file("{")).find("it is no JSON"), std::string::npos);
}

RankFacts in_slurm(const std::string& host, const std::string& address, const std::string& pattern) {
  RankFacts facts = on(host);
  facts.slurm = parse_topology_address(address, pattern);
  if (!facts.slurm) facts.slurm_problem = "bad";
  return facts;
}

constexpr const char* kPattern = "switch.switch.node";

TEST(TopologyDiscovery, Slurm) {
  const std::vector<RankFacts> ranks = {
      in_slurm("n1", "s0.s1.n1", kPattern), in_slurm("n3", "s0.s2.n3", kPattern),
      in_slurm("n2", "s0.s1.n2", kPattern), in_slurm("n1", "s0.s1.n1", kPattern)};
  const Topology topology = discover(texts_of(ranks), {});
  EXPECT_EQ(tree_of(topology), "[[[0,3],[2]],[[1]]]");
  EXPECT_EQ(topology.source(), "Slurm");
  EXPECT_EQ(topology.root().children[1].name, "s2");
  EXPECT_TRUE(topology.notes().empty());
  check_invariants(topology);
}

TEST(TopologyDiscovery, SlurmLevelsWithoutASwitch) {
  const std::vector<RankFacts> ranks = {in_slurm("n1", "s0..n1", kPattern),
                                        in_slurm("n2", "s0.s2.n2", kPattern),
                                        in_slurm("n3", "s0.s2.n3", kPattern)};
  const Topology topology = discover(texts_of(ranks), {});
  EXPECT_EQ(tree_of(topology), "[[[0]],[[1],[2]]]");
  check_invariants(topology);
}

TEST(TopologyDiscovery, SlurmThatContradictsItselfIsNotUsed) {
  const auto note_of = [](const std::vector<RankFacts>& ranks) {
    const Topology topology = discover(texts_of(ranks), {});
    EXPECT_EQ(topology.source(), "hosts");
    EXPECT_EQ(topology.notes().size(), 1u);
    check_invariants(topology);
    return topology.notes().empty() ? "" : topology.notes()[0];
  };
  // What a launcher does that passes its own environment on.
  EXPECT_NE(note_of({in_slurm("n1", "s0.s1.n1", kPattern), in_slurm("n2", "s0.s1.n1", kPattern)})
                .find("names node n1 on host n1 and on host n2"),
            std::string::npos);
  EXPECT_NE(
      note_of({in_slurm("n1", "s0.s1.n1", kPattern), on("n2")}).find("rank 1 has no SLURM_TOPOLOGY_ADDR"),
      std::string::npos);
  EXPECT_NE(note_of({in_slurm("n1", "s0.s1.n1", kPattern), in_slurm("n1", "s0.s2.n1", kPattern)})
                .find("rank 1 has another SLURM_TOPOLOGY_ADDR than rank 0"),
            std::string::npos);
  EXPECT_NE(note_of({in_slurm("n1", "n1", kPattern), in_slurm("n2", "s0.s2.n2", kPattern)}).find("on rank 0"),
            std::string::npos);
}

TEST(TopologyDiscovery, SlurmWithoutATopology) {
  const std::vector<RankFacts> ranks = {in_slurm("n1", "n1", "node"), in_slurm("n2", "n1", "node"), on("n3")};
  const Topology topology = discover(texts_of(ranks), {});
  EXPECT_EQ(topology.source(), "hosts");
  EXPECT_TRUE(topology.notes().empty());
}

TEST(TopologyDiscovery, SlurmAddresses) {
  const auto address = parse_topology_address("s0.s[1-2].n1.site.org", kPattern);
  ASSERT_TRUE(address);
  EXPECT_EQ(address->switches, (std::vector<std::string>{"s0", "s[1-2]"}));
  EXPECT_EQ(address->node, "n1.site.org");
  EXPECT_TRUE(parse_topology_address("n1", "node")->switches.empty());
  EXPECT_EQ(parse_topology_address("b1.n1", "block.node")->switches, (std::vector<std::string>{"b1"}));
  for (const auto& [text, pattern] : {std::pair("", ""),
                                      {"n1", ""},
                                      {"", "node"},
                                      {"n1", "switch"},
                                      {"n1", kPattern},
                                      {"s0.n1", kPattern},
                                      {"s0.s1.", kPattern},
                                      {"s0.n1", "node.node"},
                                      {"a.b", ".node"},
                                      {"a.n 1", "switch.node"}}) {
    EXPECT_FALSE(parse_topology_address(text, pattern)) << text << " " << pattern;
  }
  std::string deep;
  std::string pattern;
  for (int i = 0; i < 1000; ++i) deep += "s.", pattern += "switch.";
  EXPECT_FALSE(parse_topology_address(deep + "n", pattern + "node"));
}

TEST(TopologyDiscovery, MeasuredGroups) {
  TopologyRequest request{{}, "measure", "", std::nullopt};
  const std::vector<std::string> facts = place({"h4", "h1", "h3", "h2"});
  const Topology before = discover(facts, request);
  EXPECT_EQ(before.tiers(), (std::vector<std::string>{"host", "cluster"}));
  request.measured = {{0, 2}, {1, 3}};
  const Topology topology = discover(facts, request);
  EXPECT_EQ(tree_of(topology), "[[[0],[2]],[[1],[3]]]");
  EXPECT_EQ(topology.source(), "measurement");
  EXPECT_EQ(topology.root().children[0].name, "around h3");
  check_invariants(topology);
  request.measured = {{0, 1, 2, 3}};
  EXPECT_EQ(discover(facts, request).tiers(), before.tiers());
  for (const auto& bad :
       {std::vector<std::vector<int>>{{0, 1}, {2}}, {{0, 1}, {1, 2, 3}}, {{0, 1, 2, 4}}, {{-1}}}) {
    request.measured = bad;
    EXPECT_NE(error_of(facts, request).find("[ERROR DDL-1-10]"), std::string::npos);
  }
}

TEST(TopologyDiscovery, OrderOfTheSources) {
  std::vector<RankFacts> ranks;
  for (const char* host : {"h1", "h2", "h3", "h4"}) {
    ranks.push_back(in_slurm(host, std::string("s0.s") + host[1] + "." + host, kPattern));
    ranks.back().emulated_racks = {0};
  }
  const std::vector<std::string> facts = texts_of(ranks);
  TopologyRequest all{{1, 2, 2}, "site.json", kTwoRacks, std::nullopt};
  EXPECT_EQ(discover(facts, all).source(), "-mode");
  ASSERT_EQ(discover(facts, all).notes().size(), 1u);
  EXPECT_NE(discover(facts, all).notes()[0].find("site.json"), std::string::npos);
  all.dims.clear();
  EXPECT_EQ(discover(facts, all).source(), "topology file site.json");
  all.source = "measure";
  all.measured = {{0, 1}, {2, 3}};
  EXPECT_EQ(discover(facts, all).source(), "measurement");
  all.source.clear();
  EXPECT_EQ(discover(facts, all).source(), "Slurm");
  all.source = "none";
  EXPECT_EQ(discover(facts, all).source(), "hosts");
  for (RankFacts& rank : ranks) rank.slurm.reset();
  all.source.clear();
  EXPECT_EQ(discover(texts_of(ranks), all).source(), "DDL_EMULATE_HOSTS");
}

TEST(TopologyDiscovery, AnyNumberingOfRanksGivesTheSameGroups) {
  std::mt19937 random(20261121);
  for (int repeat = 0; repeat < 300; ++repeat) {
    // A random tree of three tiers, and every source's way to say it.
    std::vector<RankFacts> ranks;
    std::string file = R"({"version": 1, "groups": [)";
    int hosts = 0;
    const bool even = random() % 2 == 0;
    const std::size_t size = 1 + random() % 3;
    const std::size_t racks = 1 + random() % 4;
    for (std::size_t rack = 0; rack < racks; ++rack) {
      file +=
          (rack > 0 ? "," : "") + std::string("{\"name\": \"r") + std::to_string(rack) + "\", \"hosts\": [";
      for (std::size_t h = 0, n = even ? 2 : 1 + random() % 3; h < n; ++h, ++hosts) {
        const std::string name = "h" + std::to_string(hosts);
        file += (h > 0 ? ",\"" : "\"") + name + "\"";
        for (std::size_t i = 0, m = even ? size : 1 + random() % 3; i < m; ++i) {
          RankFacts facts = in_slurm(name, "s.r" + std::to_string(rack) + "." + name, kPattern);
          facts.machine_key += "#" + std::to_string(ranks.size());  // tells ranks apart
          facts.order = HostOrder{(hosts * 7) % 12, 5};
          ranks.push_back(facts);
        }
      }
      file += "]}";
    }
    file += "]}";
    std::vector<TopologyRequest> requests = {{}, by_file(file)};
    if (even) requests.push_back(by_dims({static_cast<int>(size), 2, static_cast<int>(racks)}));
    std::vector<std::string> expected;
    for (int shuffle = 0; shuffle < 4; ++shuffle) {
      std::vector<std::string> names;
      for (const RankFacts& facts : ranks) names.push_back(facts.host_name);
      for (std::size_t r = 0; r < requests.size(); ++r) {
        const Topology topology = discover(texts_of(ranks), requests[r]);
        check_invariants(topology);
        const std::string groups = canonical(topology.root(), names);
        if (shuffle == 0) expected.push_back(groups);
        EXPECT_EQ(groups, expected[r]);
      }
      // Slurm and the file describe the same tree.
      if (racks > 1) {
        EXPECT_EQ(tree_of(discover(texts_of(ranks), requests[0])),
                  tree_of(discover(texts_of(ranks), requests[1])));
      }
      std::shuffle(ranks.begin(), ranks.end(), random);
    }
  }
}

TEST(TopologyDiscovery, Json) {
  EXPECT_EQ(discover(place({"a", "b", "a"}), by_file(R"({"version": 1, "name": "c", "hosts": ["a", "b"],
                     "tiers": [{}, {"name": "net", "bandwidth_mbit": 0.5}]})"))
                .to_json(),
            R"({"tiers":["host","net"],"links":[{"bandwidth_mbit":null,"latency_us":null},)"
            R"({"bandwidth_mbit":0.5,"latency_us":null}],"source":"topology file site.json","notes":[],)"
            R"("hosts":[{"name":"a","ranks":[0,2],"numa_nodes":[-1,-1],"packages":[-1,-1]},)"
            R"({"name":"b","ranks":[1],"numa_nodes":[-1],"packages":[-1]}],)"
            R"("groups":[{"tier":"net","name":"c","ranks":[0,1,2]},{"tier":"host","name":"a","ranks":[0,2]},)"
            R"({"tier":"host","name":"b","ranks":[1]}],"tree":[[0,2],[1]]})");
}

TEST(TopologyDiscovery, Text) {
  std::vector<RankFacts> ranks = {on("h1"), on("h1"), on("h2"), on("h3")};
  ranks[0].position.numa_node = 0;
  ranks[1].position.numa_node = 1;
  ranks[3].position.numa_node = 1;
  EXPECT_EQ(discover(texts_of(ranks), by_file(kTwoRacks)).to_text(),
            "topology from topology file site.json\n"
            "cluster: 2 switches, 4 ranks, a switch is linked by 200 Mbit/s, 50 us\n"
            "  switch r1: 2 hosts, 3 ranks, a host is linked by 1000 Mbit/s, 20 us\n"
            "    host h1: ranks 0, 1 (NUMA node 0: rank 0; NUMA node 1: rank 1), a rank is linked by 80000 "
            "Mbit/s\n"
            "    host h2: rank 2\n"
            "  switch r2: 1 host, 1 rank\n"
            "    host h3: rank 3 (NUMA node 1)\n");
}

TEST(TopologyFacts, AreTheSameAfterATrip) {
  RankFacts facts = on("h\"1\n");
  facts.position = {3, -1};
  facts.slurm = SlurmAddress{{"s0", ""}, "n1"};
  facts.slurm_problem = "x";
  facts.order = HostOrder{4, 0xffffffffffffffffULL};
  facts.emulated_racks = {0, 2};
  const std::string text = serialise(facts);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_EQ(serialise(parse_facts(text)), text);
  EXPECT_EQ(parse_facts(text).host_name, facts.host_name);
  EXPECT_EQ(parse_facts(text).order, facts.order);
  EXPECT_EQ(parse_facts(text).emulated_racks, facts.emulated_racks);
  EXPECT_EQ(parse_facts(text).position.numa_node, 3);
  for (const char* bad : {"", "{", "[]", "{\"host\": 1}"}) {
    EXPECT_THROW(parse_facts(bad), Error) << bad;
  }
  facts.host_name = "\xff\xfe";
  EXPECT_NO_THROW(parse_facts(serialise(facts)));
}

/// Sets a variable while it lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }

 private:
  const char* name_;
};

TEST(TopologyFacts, OfThisProcess) {
  const RankFacts facts = gather_facts();
  EXPECT_FALSE(facts.host_name.empty());
  EXPECT_EQ(facts.host_key, facts.machine_key);
  EXPECT_FALSE(facts.slurm);
  EXPECT_FALSE(facts.order);
  EXPECT_EQ(local_facts(), serialise(facts));
}

TEST(TopologyFacts, FromTheEnvironment) {
  const std::string host = gather_facts().host_name;
  const Variable address("SLURM_TOPOLOGY_ADDR", "s0.s1.n7");
  const Variable order("DDL_HOST_ORDER", ("other," + host + ",third").c_str());
  EXPECT_EQ(gather_facts().order->position, 1);
  EXPECT_NE(gather_facts().slurm_problem.find("'s0.s1.n7' does not fit"), std::string::npos);
  const Variable pattern("SLURM_TOPOLOGY_ADDR_PATTERN", kPattern);
  EXPECT_EQ(gather_facts().slurm->node, "n7");
  const Variable other("DDL_HOST_ORDER", "x,y");
  EXPECT_EQ(gather_facts().order->position, -1);

  const Variable emulated("DDL_EMULATE_HOSTS", "3,2/2");
  const RankFacts fifth = gather_facts(5, 7);
  EXPECT_EQ(fifth.host_name, "emulated2");
  EXPECT_EQ(fifth.emulated_racks, (std::vector<int>{1}));
  EXPECT_NE(fifth.host_key, fifth.machine_key);
  EXPECT_TRUE(fifth.host_key.starts_with(fifth.machine_key));
  EXPECT_FALSE(fifth.slurm);
  EXPECT_FALSE(fifth.order);
  EXPECT_EQ(gather_facts().host_name, host);
  EXPECT_THROW(gather_facts(0, 6), Error);
}

TEST(TopologyEmulation, Hosts) {
  const std::vector<EmulatedHost> hosts = parse_emulation("3,2", 5);
  ASSERT_EQ(hosts.size(), 2u);
  EXPECT_EQ(hosts[0].ranks, 3);
  EXPECT_EQ(emulated_host_of(hosts, 2), 0u);
  EXPECT_EQ(emulated_host_of(hosts, 3), 1u);
  EXPECT_EQ(emulated_host_of(hosts, 4), 1u);
  for (const char* bad : {"3", "3,3", "", ",", "5,", "2,,3", "-1,6", "0,5", "x", "3;2", "99999999999"}) {
    EXPECT_THROW(parse_emulation(bad, 5), Error) << bad;
  }
}

TEST(TopologyEmulation, NeverJoinsMachines) {
  // The second half of one emulated host is on another machine.
  const Variable emulated("DDL_EMULATE_HOSTS", "3,1");
  std::vector<std::string> texts;
  for (int rank = 0; rank < 4; ++rank) {
    RankFacts facts = gather_facts(rank, 4);
    facts.host_key = (rank < 2 ? "machine a/" : "machine b/") + facts.host_key;
    texts.push_back(serialise(facts));
  }
  EXPECT_EQ(discover(texts, {}).hosts().size(), 3u);
}

TEST(TopologyEmulation, Racks) {
  const auto racks = [](const std::string& text, int size) {
    std::vector<std::vector<int>> all;
    for (const EmulatedHost& host : parse_emulation(text, size)) all.push_back(host.racks);
    return all;
  };
  EXPECT_EQ(racks("3,2", 5), (std::vector<std::vector<int>>{{}, {}}));
  EXPECT_EQ(racks("3,2/2,1", 8), (std::vector<std::vector<int>>{{0}, {0}, {1}, {1}}));
  EXPECT_EQ(racks("1/1//1/1,1", 5), (std::vector<std::vector<int>>{{0, 0}, {0, 1}, {1, 2}, {1, 3}, {1, 3}}));
  for (const char* bad : {"5/", "/5", "3/,2", "3,/2", "1//////////4", "3\\2", "3 ,2"}) {
    EXPECT_THROW(parse_emulation(bad, 5), Error) << bad;
  }
}

TEST(TopologyEmulation, MakesTiers) {
  const std::vector<EmulatedHost> hosts = parse_emulation("2,1/1,1//1", 6);
  std::vector<RankFacts> ranks;
  for (int rank = 0; rank < 6; ++rank) {
    const std::size_t h = emulated_host_of(hosts, rank);
    ranks.push_back(on("emulated" + std::to_string(h)));
    ranks.back().emulated_racks = hosts[h].racks;
  }
  const Topology topology = discover(texts_of(ranks), {});
  EXPECT_EQ(tree_of(topology), "[[[[0,1],[2]],[[3],[4]]],[[[5]]]]");
  EXPECT_EQ(topology.tiers(), (std::vector<std::string>{"host", "rack", "aisle", "cluster"}));
  check_invariants(topology);
}

}  // namespace
}  // namespace ddl
