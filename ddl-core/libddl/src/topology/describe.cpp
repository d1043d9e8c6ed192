// What a topology says about itself: to users, in messages, as JSON.
#include <algorithm>
#include <map>

#include "support/json.hpp"
#include "support/number.hpp"
#include "topology/topology.hpp"

namespace ddl {
namespace {

std::string number(double value) { return format_number(value); }

template <class Values, class Format>
std::string json_array(const Values& values, Format&& format) {
  std::string out = "[";
  for (const auto& value : values) {
    if (out.size() > 1) out += ',';
    out += format(value);
  }
  return out + ']';
}

std::string json_numbers(const std::vector<int>& values) {
  return json_array(values, [](int value) { return std::to_string(value); });
}

std::string json_link(const TierLink& link) {
  const auto figure = [](const std::optional<double>& value) {
    return value ? number(*value) : std::string("null");
  };
  return "{\"bandwidth_mbit\":" + figure(link.bandwidth_mbit) + ",\"latency_us\":" + figure(link.latency_us) +
         '}';
}

std::string json_tree(const Group& group) {
  if (group.leaf()) return std::to_string(group.ranks.front());
  return json_array(group.children, json_tree);
}

/// Nothing on a host without GPUs.
std::string json_gpus(const Host& host) {
  if (std::all_of(host.gpus.begin(), host.gpus.end(), [](const GpuPlace& gpu) { return gpu.bus.empty(); })) {
    return "";
  }
  return ",\"gpus\":" +
         json_array(host.gpus,
                    [](const GpuPlace& gpu) {
                      return gpu.bus.empty() ? std::string("null") : json_string(gpu.bus);
                    }) +
         ",\"islands\":" +
         json_array(host.gpus, [](const GpuPlace& gpu) { return std::to_string(gpu.island); });
}

/// Objects of all inner groups, outermost first.
void json_groups(const Group& group, const std::vector<std::string>& tiers, std::size_t tier,
                 std::string& out) {
  if (out.size() > 1) out += ',';
  out += "{\"tier\":" + json_string(tiers[tier]) + ",\"name\":" + json_string(group.name) +
         ",\"ranks\":" + json_numbers(group.ranks) + '}';
  if (tier == 0) return;
  for (const Group& child : group.children) json_groups(child, tiers, tier - 1, out);
}

std::string link_text(const TierLink& link) {
  std::string text;
  if (link.bandwidth_mbit) text += number(*link.bandwidth_mbit) + " Mbit/s";
  if (link.latency_us) text += (text.empty() ? "" : ", ") + number(*link.latency_us) + " us";
  return text;
}

std::string numa_text(const Topology& topology, const Group& host) {
  std::map<int, std::vector<int>> by_node;
  for (const int rank : host.ranks) by_node[topology.numa_node_of(rank)].push_back(rank);
  if (by_node.size() == 1 && by_node.begin()->first < 0) return "";
  std::string text;
  for (const auto& [node, ranks] : by_node) {
    text += text.empty() ? " (" : "; ";
    text += (node < 0 ? std::string("any NUMA node") : "NUMA node " + std::to_string(node));
    if (by_node.size() > 1) text += ": " + Topology::describe_ranks(ranks);
  }
  return text + ")";
}

/// Which ranks of a host NVLink joins, and which share a GPU.
std::string gpu_text(const Topology& topology, const Group& host) {
  std::map<int, std::vector<int>> islands;
  std::map<std::string, std::vector<int>> shared;
  for (const int rank : host.ranks) {
    const GpuPlace gpu = topology.gpu_of(rank);
    if (gpu.bus.empty()) continue;
    islands[gpu.island].push_back(rank);
    shared[gpu.bus].push_back(rank);
  }
  std::string text;
  for (const auto& [island, ranks] : islands) {
    text += (island < 0 ? std::string("; GPU without NVLink: ")
                        : "; NVLink island " + std::to_string(island) + ": ") +
            Topology::describe_ranks(ranks);
  }
  for (const auto& [bus, ranks] : shared) {
    if (ranks.size() > 1) text += "; GPU " + bus + " shared: " + Topology::describe_ranks(ranks);
  }
  return text;
}

/// "2 hosts", "1 switch", "3 of tier 4": tiers may have any name.
std::string counted(std::size_t number, const std::string& name) {
  const std::string count = std::to_string(number) + ' ';
  const char last = name.empty() ? ' ' : name.back();
  if (number == 1) return count + name;
  if (last < 'a' || last > 'z') return count + "of " + name;
  const bool hissing = last == 's' || last == 'x' || name.ends_with("ch") || name.ends_with("sh");
  return count + name + (hissing ? "es" : "s");
}

void text_group(const Topology& topology, const Group& group, std::size_t tier, int depth, std::string& out) {
  const std::string& kind = topology.tiers()[tier];
  // Names are other people's text.
  std::string name;
  for (const char c : group.name) name += c >= 0x20 && c < 0x7f ? c : '?';
  const bool repeated = name.starts_with(kind + ' ');
  out += std::string(static_cast<std::size_t>(depth) * 2, ' ') + (repeated ? "" : kind);
  if (!name.empty()) out += (repeated ? "" : " ") + name;
  if (tier == 0) {
    out +=
        ": " + Topology::describe_ranks(group.ranks) + numa_text(topology, group) + gpu_text(topology, group);
  } else {
    out += ": " + counted(group.children.size(), topology.tiers()[tier - 1]) + ", " +
           counted(group.ranks.size(), "rank");
  }
  const TierLink& link = topology.links()[tier];
  // Of a group of one child there is nothing that uses it.
  if (link.known() && group.children.size() > 1) {
    const std::string member = tier == 0 ? "rank" : topology.tiers()[tier - 1];
    out += ", a " + member + " is linked by " + link_text(link);
  }
  out += '\n';
  if (tier == 0) return;
  for (const Group& child : group.children) text_group(topology, child, tier - 1, depth + 1, out);
}

}  // namespace

std::string Topology::describe_rank(int rank) const {
  return "rank " + std::to_string(rank) + " (host " + host_name_of(rank) + ")";
}

std::string Topology::describe_ranks(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::string out = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (i > 0) out += ", ";
    out += std::to_string(ranks[i]);
    if (last > i) out += (last == i + 1 ? ", " : "-") + std::to_string(ranks[last]);
    i = last + 1;
  }
  return out;
}

std::string Topology::to_json() const {
  std::string groups = "[";
  json_groups(root_, tiers_, tiers_.size() - 1, groups);
  return "{\"tiers\":" + json_array(tiers_, json_string) + ",\"links\":" + json_array(links_, json_link) +
         ",\"source\":" + json_string(source_) + ",\"notes\":" + json_array(notes_, json_string) +
         ",\"hosts\":" +
         json_array(hosts_,
                    [](const Host& host) {
                      return "{\"name\":" + json_string(host.name) +
                             ",\"ranks\":" + json_numbers(host.ranks) +
                             ",\"numa_nodes\":" + json_numbers(host.numa_nodes) +
                             ",\"packages\":" + json_numbers(host.packages) + json_gpus(host) + '}';
                    }) +
         ",\"groups\":" + groups + "],\"tree\":" + json_tree(root_) + '}';
}

std::string Topology::to_text() const {
  std::string out = "topology from " + source_ + '\n';
  text_group(*this, root_, tiers_.size() - 1, 0, out);
  for (const std::string& note : notes_) out += "note: " + note + '\n';
  return out;
}

}  // namespace ddl
