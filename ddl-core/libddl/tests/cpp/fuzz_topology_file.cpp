// Topology files, JSON and topology.conf: any text is a description or an error that says where and what to
// do.
#include "fuzz_target.hpp"
#include "support/error.hpp"
#include "topology/topology_file.hpp"

namespace {

void collect(const ddl::DescribedGroup& group, std::vector<ddl::Host>& hosts) {
  for (const ddl::DescribedHost& host : group.hosts) {
    if (hosts.size() < 50) hosts.push_back({host.name, {static_cast<int>(hosts.size())}});
  }
  for (const ddl::DescribedGroup& inner : group.groups) collect(inner, hosts);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const ddl::Description description = ddl::parse_topology_file(text, "file");
    require(ddl::tiers_of(description.root) <= ddl::kMaxTiers);
    require(description.tiers.size() <= ddl::tiers_of(description.root));
    // A job on its first hosts.
    std::vector<ddl::Host> hosts;
    collect(description.root, hosts);
    if (hosts.empty()) return 0;
    ddl::Branch root = ddl::place_hosts(description, hosts, "file");
    const ddl::Topology topology(hosts, std::move(root), description.tiers, "file", {});
    require(topology.root().ranks.size() == hosts.size());
    require(topology.tiers().size() == topology.links().size());
    require(!topology.to_json().empty() && !topology.to_text().empty());
  } catch (const ddl::Error& error) {
    const std::string what = error.what();
    require(error.code() == DDL_ERR_OPTION && what.find("; in ") != std::string::npos);
    require(what.size() < 2000);
  }
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  return {R"({"version": 1, "hosts": ["a", "n[01-12]", "r[0-1]n[1-2].site.org"]})",
          R"({"version": 1, "name": "c", "description": "text",
              "tiers": [{"name": "host"}, {"name": "rack", "bandwidth_mbit": 1000, "latency_us": 2.5}, {}],
              "groups": [{"name": "r1", "hosts": ["h1", "h2"]}, {"name": "r2", "groups": [{"hosts": ["h3"]}]}]})",
          "SwitchName=s0 Nodes=tux[0-1] LinkSpeed=100\nSwitchName=s1 Nodes=tux[2-3]\n"
          "SwitchName=s2 Switches=s[0-1] # comment\n",
          "BlockName=b1 Nodes=n[1-4]\nBlockName=b2 \\\n Nodes=n[5-8]\nBlockSizes=4,8\n"};
}

std::vector<std::string> fuzz_words() {
  return {"\"version\": 1",
          "\"hosts\": [\"x\"]",
          "\"groups\": [{",
          "}]",
          "\"tiers\": [",
          "\"name\": ",
          "\"bandwidth_mbit\": ",
          "\"latency_us\": ",
          "null",
          "true",
          "-1",
          "1e308",
          "1e999",
          "18446744073709551616",
          "{",
          "}",
          "[",
          "]",
          ",",
          ":",
          "\"",
          "\\u0000",
          "\\ud800",
          "\xc3\xa9",
          "\xff",
          std::string(1, '\0'),
          "SwitchName=",
          "Switches=",
          "Nodes=",
          "BlockName=",
          "BlockSizes=",
          "LinkSpeed=",
          "s[0-2]",
          "[0-99999]",
          "[0-9][0-9][0-9]",
          "\\\n",
          "\n",
          "#",
          "=",
          " ",
          "-",
          "."};
}
