// Topology files: what they mean, and what is said of those that are wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "support/error.hpp"
#include "topology/topology_file.hpp"

namespace ddl {
namespace {

/// "(h1 h2) [rack](h3)": hosts of a group, then its groups.
std::string shape(const DescribedGroup& group) {
  std::string out = group.name + "(";
  for (const DescribedHost& host : group.hosts) out += (out.ends_with('(') ? "" : " ") + host.name;
  for (const DescribedGroup& inner : group.groups) out += (out.ends_with('(') ? "" : " ") + shape(inner);
  return out + ")";
}

std::string shape_of(const std::string& text) { return shape(parse_topology_file(text, "f").root); }

std::string error_of(const std::string& text) {
  try {
    parse_topology_file(text, "site.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), DDL_ERR_OPTION);
    return error.what();
  }
  ADD_FAILURE() << "accepted: " << text;
  return "";
}

TEST(TopologyFile, GroupsHostsAndRanges) {
  EXPECT_EQ(shape_of(R"({"version": 1, "hosts": ["a", "n[1-2]"]})"), "(a n1 n2)");
  EXPECT_EQ(shape_of(R"( {"version": 1, "name": "c", "description": "x",
    "groups": [{"name": "r1", "hosts": ["n[1-2]"]},
               {"name": "r2", "hosts": ["n3"], "groups": [{"hosts": ["n4"]}]}]})"),
            "c(r1(n1 n2) r2(n3 (n4)))");
}

TEST(TopologyFile, TiersHaveNamesAndLinks) {
  const Description description = parse_topology_file(
      R"({"version": 1, "groups": [{"hosts": ["a"]}, {"hosts": ["b"]}],
          "tiers": [{}, {"name": "switch", "bandwidth_mbit": 25000, "latency_us": 2.5}, {"latency_us": 9}]})",
      "f");
  ASSERT_EQ(description.tiers.size(), 3u);
  EXPECT_EQ(description.tiers[1].name, "switch");
  EXPECT_EQ(description.tiers[1].link.bandwidth_mbit, 25000);
  EXPECT_EQ(description.tiers[1].link.latency_us, 2.5);
  EXPECT_FALSE(description.tiers[0].link.known());
  EXPECT_EQ(description.tiers[2].link.latency_us, 9);
  EXPECT_FALSE(description.tiers[2].link.bandwidth_mbit);
}

TEST(TopologyFile, ErrorsNameTheFileThePlaceAndTheRemedy) {
  const std::vector<std::tuple<std::string, std::string, std::string>> cases = {
      {"", "the topology file is empty", "docs/cluster/topology.md"},
      {"  \n", "the topology file is empty", "docs/cluster/topology.md"},
      {"{", "it is no JSON: parse error at line 1, column 2", "mend it"},
      {R"({"version": 1, "hosts": ["a"],})", "it is no JSON", "mend it"},
      {R"({"version": 1e999, "hosts": ["a"]})", "it is no JSON: number overflow", "mend it"},
      {"[1]", "the file is no object but an array", "write {\"version\": 1"},
      {R"({"hosts": ["a"]})", "'version' is missing", "write \"version\": 1"},
      {R"({"version": 2, "hosts": ["a"]})", "version 2 is not known; in topology file site.json at /version",
       "version 1"},
      {R"({"version": "1", "hosts": ["a"]})", "version \"1\" is not known", "version 1"},
      {R"({"version": 1.0, "hosts": ["a"]})", "version 1.0 is not known", "version 1"},
      {R"({"version": 1})", "there are neither 'groups' nor 'hosts'", "name the hosts"},
      {R"({"version": 1, "host": ["a"]})", "unknown key \"host\"", "valid are description, groups, hosts"},
      {R"({"version": 1, "version": 1, "hosts": ["a"]})", "an object has the key \"version\" twice",
       "leave one"},
      {R"({"version": 1, "groups": [{"hosts": ["a"], "hosts": ["b"]}]})",
       "an object has the key \"hosts\" twice", "leave one"},
      {R"({"version": 1, "hosts": "a"})",
       "a list is expected, not a string; in topology file site.json at /hosts", "square brackets"},
      {R"({"version": 1, "hosts": []})", "the list is empty; in topology file site.json at /hosts",
       "fill it"},
      {R"({"version": 1, "groups": []})", "the list is empty; in topology file site.json at /groups",
       "fill it"},
      {R"({"version": 1, "hosts": ["a", 3]})", "a text is expected, not a number", "at /hosts/1; "},
      {R"({"version": 1, "groups": ["a"]})", "a group is an object, not a string", "at /groups/0; "},
      {R"({"version": 1, "groups": [{"hosts": ["a"]}, {"name": 7, "hosts": ["b"]}]})",
       "a text is expected, not a number", "at /groups/1/name; "},
      {R"({"version": 1, "groups": [{"hosts": ["a"], "version": 1}]})", "unknown key \"version\"",
       "at /groups/0; valid are groups, hosts, name"},
      {R"({"version": 1, "groups": [{"name": "r"}]})", "there are neither 'groups' nor 'hosts'",
       "at /groups/0; "},
      {R"({"version": 1, "groups": [{"groups": [{"hosts": ["n[1-"]}]}]})",
       "host list \"n[1-\": '[' without ']'; in topology file site.json at /groups/0/groups/0/hosts/0",
       "node[01-16]"},
      {R"({"version": 1, "hosts": ["n[1-9999999]"]})", "more than 100000 names", "at /hosts/0"},
      {R"({"version": 1, "hosts": ["a b"]})", "\"a b\" is no host name", "letters, digits"},
      {R"({"version": 1, "hosts": ["caf\u00e9"]})", "\"caf\\u00e9\" is no host name", "letters, digits"},
      {R"({"version": 1, "hosts": ["a"], "tiers": {}})", "a list is expected, not an object", "at /tiers; "},
      {R"({"version": 1, "hosts": ["a"], "tiers": [{}, {}, {}]})",
       "there are 3 tiers, but hosts and groups make 2", "at /tiers/2; "},
      {R"({"version": 1, "hosts": ["a"], "tiers": ["x"]})", "a tier is an object, not a string",
       "at /tiers/0; "},
      {R"({"version": 1, "hosts": ["a"], "tiers": [{"bandwidth": 1}]})", "unknown key \"bandwidth\"",
       "bandwidth_mbit, latency_us, name"},
      {R"({"version": 1, "hosts": ["a"], "tiers": [{"bandwidth_mbit": "fast"}]})",
       "bandwidth_mbit is \"fast\"", "at /tiers/0/bandwidth_mbit; write a number"},
      {R"({"version": 1, "hosts": ["a"], "tiers": [{"latency_us": 0}]})", "latency_us is 0", "more than 0"},
      {R"({"version": 1, "hosts": ["a"], "tiers": [{"latency_us": -1}]})", "latency_us is -1", "more than 0"},
      {R"({"version": 1, "hosts": ["a"], "tiers": [{"bandwidth_mbit": 1e10}]})", "bandwidth_mbit is", "1e9"},
      {R"({"version": 1, "hosts": ["a"], "tiers": [{"name": "x"}, {"name": "x"}]})",
       "two tiers have the name \"x\"", "at /tiers/1/name; "},
  };
  for (const auto& [text, what, remedy] : cases) {
    const std::string error = error_of(text);
    EXPECT_TRUE(error.starts_with("[ERROR DDL-1-2] ")) << error;
    EXPECT_NE(error.find(what), std::string::npos) << text << "\n" << error;
    EXPECT_NE(error.find(remedy), std::string::npos) << text << "\n" << error;
    EXPECT_NE(error.find("site.json"), std::string::npos) << error;
  }
}

TEST(TopologyFile, NestingHasALimit) {
  const auto nested = [](int depth) {
    std::string text = R"({"version": 1)";
    for (int i = 0; i < depth; ++i) text += i == 0 ? R"(, "groups": [{)" : R"("groups": [{)";
    text += depth == 0 ? R"(, "hosts": ["a"])" : R"("hosts": ["a"])";
    for (int i = 0; i < depth; ++i) text += "}]";
    return text + "}";
  };
  EXPECT_EQ(tiers_of(parse_topology_file(nested(kMaxTiers - 2), "f").root), kMaxTiers);
  EXPECT_NE(error_of(nested(kMaxTiers - 1)).find("deeper than 16 tiers"), std::string::npos);
  EXPECT_NE(error_of(nested(100000)).find("deeper than 16 tiers"), std::string::npos);
  EXPECT_NE(error_of("{\"version\":" + std::string(100000, '[')).find("deeper than"), std::string::npos);
}

TEST(TopologyFile, SizesHaveLimits) {
  std::string many = R"({"version": 1, "hosts": [)";
  for (int i = 0; i < 11; ++i) {
    many += (i > 0 ? "," : "") + std::string("\"h") + std::to_string(i) + "x[0-99999]\"";
  }
  EXPECT_NE(error_of(many + "]}").find("at /hosts/10"), std::string::npos);
  EXPECT_NE(error_of(std::string(kMaxTopologyFileBytes + 1, ' ')).find("bytes"), std::string::npos);
}

TEST(TopologyConf, SlurmsExample) {
  // The shape of the manual's example, with comments, blanks, continued lines and keys in any case.
  const Description description = parse_topology_file(R"(
# two leaf switches
SwitchName=s0 Nodes=tux[0-1] LinkSpeed=100
switchname=s1   NODES=tux[2-3],gpu1   # the others
SwitchName=s2 \
   Switches=s[0-1]
)",
                                                      "topology.conf");
  EXPECT_EQ(shape(description.root), "(s2(s0(tux0 tux1) s1(tux2 tux3 gpu1)))");
  EXPECT_EQ(description.root.groups[0].groups[1].hosts[2].where, "line 4");
  EXPECT_TRUE(description.tiers.empty());
}

TEST(TopologyConf, BlocksAndSeveralRoots) {
  EXPECT_EQ(shape_of("BlockName=b1 Nodes=n[1-2]\nBlockName=b2 Nodes=n3\nBlockSizes=2\n"),
            "(b1(n1 n2) b2(n3))");
  EXPECT_EQ(shape_of("SwitchName=x Nodes=a\r\nSwitchName=y Nodes=b\r\n"), "(x(a) y(b))");
}

TEST(TopologyConf, ErrorsNameTheLine) {
  const std::vector<std::tuple<std::string, std::string, std::string>> cases = {
      {"nonsense", "'nonsense' is no KEY=VALUE", "at line 1"},
      {"# only a comment", "neither a JSON object nor", "docs/cluster/topology.md"},
      {"\nSwitchName=s0", "switch 's0' has neither Switches nor Nodes", "at line 2"},
      {"Nodes=a", "there is no SwitchName", "at line 1"},
      {"SwitchName=s0 Nodes= a", "'Nodes=' is no KEY=VALUE", "without blanks"},
      {"SwitchName=s0 Node=a", "unknown key 'Node'", "valid are SwitchName, Switches, Nodes"},
      {"SwitchName=s0 Nodes=a\nSwitchName=s0 Nodes=b", "switch 's0' is there twice, first at line 1",
       "at line 2"},
      {"SwitchName=s0 SwitchName=s1 Nodes=a", "a second name 's1'", "one switch a line"},
      {"SwitchName=s0 Nodes=a[1-", "list 'a[1-': '[' without ']'", "at line 1"},
      {"SwitchName=s0 Nodes=a/b", "'a/b' is no host name", "at line 1"},
      {"SwitchName=s0 Switches=s[1-2]\nSwitchName=s1 Nodes=a", "switch 's2' of 's0' has no line",
       "add a line SwitchName="},
      {"SwitchName=a Switches=c\nSwitchName=b Switches=c\nSwitchName=c Nodes=n",
       "switch 'c' is connected twice", "at line 2"},
      {"SwitchName=a Switches=a", "switch 'a' is below itself", "at line 1"},
      {"SwitchName=r Nodes=n\nSwitchName=a Switches=b\nSwitchName=b Switches=c\nSwitchName=c Switches=b",
       "switch 'b' is connected twice", "at line 4"},
      {"SwitchName=r Nodes=n\nSwitchName=a Switches=b\nSwitchName=b Switches=a,t\nSwitchName=t Nodes=m",
       "is below itself", "a tree is needed"},
  };
  for (const auto& [text, what, remedy] : cases) {
    const std::string error = error_of(text);
    EXPECT_NE(error.find(what), std::string::npos) << text << "\n" << error;
    EXPECT_NE(error.find(remedy), std::string::npos) << text << "\n" << error;
    EXPECT_NE(error.find("site.json"), std::string::npos) << error;
  }
  std::string deep = "SwitchName=s0 Nodes=n\n";
  for (int i = 1; i < 20000; ++i) {
    deep += "SwitchName=s" + std::to_string(i) + " Switches=s" + std::to_string(i - 1) + "\n";
  }
  EXPECT_NE(error_of(deep).find("deeper than 16 tiers"), std::string::npos);
}

std::vector<Host> hosts_named(const std::vector<std::string>& names) {
  std::vector<Host> hosts;
  for (std::size_t i = 0; i < names.size(); ++i) hosts.push_back({names[i], {static_cast<int>(i)}});
  return hosts;
}

std::string placing_error(const std::string& file, const std::vector<std::string>& names) {
  try {
    place_hosts(parse_topology_file(file, "f"), hosts_named(names), "topology file f");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), DDL_ERR_OPTION);
    return error.what();
  }
  ADD_FAILURE() << "accepted: " << file;
  return "";
}

TEST(TopologyFile, HostsOfTheJobMustBeInIt) {
  const std::string file =
      R"({"version": 1, "groups": [{"hosts": ["n[1-2]"]}, {"hosts": ["n3.x", "n3.y"]}]})";
  EXPECT_NE(placing_error(file, {"n1", "n9", "m"}).find("hosts m, n9 of the job are not in the file"),
            std::string::npos);
  EXPECT_NE(
      placing_error(file, {"n7"}).find("host n7 of the job is not in the file; in topology file f; add"),
      std::string::npos);
  EXPECT_NE(placing_error(file, {"n3"}).find("host n3 of the job fits several hosts"), std::string::npos);
  EXPECT_NE(placing_error(file, {"n1.a", "n1.b"}).find("hosts n1.a and n1.b of the job both fit n1"),
            std::string::npos);
  std::vector<std::string> many;
  for (int i = 0; i < 20; ++i) many.push_back("x" + std::to_string(i));
  EXPECT_NE(placing_error(file, many).find("x0, x1, x2, x3, x4, x5, x6, x7 and 12 more"), std::string::npos);
}

TEST(TopologyFile, AHostIsInOneGroupOnly) {
  const std::string error =
      placing_error(R"({"version": 1, "groups": [{"hosts": ["n[1-2]"]}, {"hosts": ["N2"]}]})", {"n1"});
  EXPECT_NE(error.find("host N2 is there twice, at /groups/0/hosts/0 and at /groups/1/hosts/0"),
            std::string::npos)
      << error;
}

}  // namespace
}  // namespace ddl
