#include "topology/topology.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <numeric>

#include "support/error.hpp"
#include "support/json.hpp"

namespace ddl {
namespace {

Group leaf_of(int rank) { return Group{{rank}, {}}; }

Group parent_of(std::vector<Group> children) {
  std::sort(children.begin(), children.end(),
            [](const Group& a, const Group& b) { return a.ranks.front() < b.ranks.front(); });
  Group parent;
  for (const Group& child : children)
    parent.ranks.insert(parent.ranks.end(), child.ranks.begin(), child.ranks.end());
  std::sort(parent.ranks.begin(), parent.ranks.end());
  parent.children = std::move(children);
  return parent;
}

Group host_group(const std::vector<int>& ranks) {
  std::vector<Group> leaves;
  for (const int rank : ranks) leaves.push_back(leaf_of(rank));
  return parent_of(std::move(leaves));
}

/// Joins every `size` neighbours into a parent.
std::vector<Group> join(std::vector<Group> groups, std::size_t size) {
  std::vector<Group> parents;
  for (std::size_t i = 0; i < groups.size(); i += size) {
    const auto end = std::min(i + size, groups.size());
    parents.push_back(
        parent_of({std::make_move_iterator(groups.begin() + static_cast<std::ptrdiff_t>(i)),
                   std::make_move_iterator(groups.begin() + static_cast<std::ptrdiff_t>(end))}));
  }
  return parents;
}

void json_group(const Group& group, std::string& out) {
  if (group.leaf()) {
    out += std::to_string(group.ranks.front());
    return;
  }
  out += '[';
  for (std::size_t i = 0; i < group.children.size(); ++i) {
    if (i > 0) out += ',';
    json_group(group.children[i], out);
  }
  out += ']';
}

}  // namespace

Topology Topology::build(const std::vector<Placement>& placements, const std::vector<int>& dims) {
  Topology topology;
  std::map<std::string, std::size_t> host_by_key;
  for (std::size_t rank = 0; rank < placements.size(); ++rank) {
    const auto [it, added] = host_by_key.try_emplace(placements[rank].host_key, topology.hosts_.size());
    if (added) topology.hosts_.push_back({placements[rank].host_name, {}});
    Host& host = topology.hosts_[it->second];
    topology.host_of_.push_back(static_cast<int>(it->second));
    topology.local_rank_of_.push_back(static_cast<int>(host.ranks.size()));
    host.ranks.push_back(static_cast<int>(rank));
  }

  std::vector<Group> groups;
  for (const Host& host : topology.hosts_) {
    if (dims.empty()) {
      groups.push_back(host_group(host.ranks));
      continue;
    }
    // A host may hold several of the user's "hosts": sizes are about groups of fast links, and trying p:2x2
    // on one machine is legitimate. The other way round a group would not share memory.
    const auto size = static_cast<std::size_t>(dims[0]);
    if (host.ranks.size() % size != 0) {
      throw Error(DDL_ERR_OPTION,
                  "-mode says " + std::to_string(size) + " ranks a host, but host " + host.name + " has " +
                      std::to_string(host.ranks.size()) +
                      "; in -mode of DDL_OPTIONS; start that many ranks on every host, or leave the "
                      "sizes out to have the topology discovered");
    }
    for (std::size_t at = 0; at < host.ranks.size(); at += size) {
      const auto begin = host.ranks.begin() + static_cast<std::ptrdiff_t>(at);
      groups.push_back(host_group({begin, begin + static_cast<std::ptrdiff_t>(size)}));
    }
  }
  std::sort(groups.begin(), groups.end(),
            [](const Group& a, const Group& b) { return a.ranks.front() < b.ranks.front(); });

  topology.tiers_.push_back("host");
  const char* outer[] = {"rack", "aisle"};
  for (std::size_t i = 1; i < dims.size() && i < 3; ++i) {
    // A tier of single members would only copy.
    if (dims[i] == 1 || static_cast<std::size_t>(dims[i]) >= groups.size()) continue;
    groups = join(std::move(groups), static_cast<std::size_t>(dims[i]));
    topology.tiers_.push_back(outer[i - 1]);
  }
  if (groups.size() > 1) {
    topology.root_ = parent_of(std::move(groups));
    topology.tiers_.push_back("cluster");
  } else {
    topology.root_ = std::move(groups.front());
  }
  return topology;
}

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
  std::string out = "{\"tiers\":[";
  for (std::size_t i = 0; i < tiers_.size(); ++i) out += (i > 0 ? "," : "") + json_string(tiers_[i]);
  out += "],\"hosts\":[";
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    out += (i > 0 ? ",{\"name\":" : "{\"name\":") + json_string(hosts_[i].name) + ",\"ranks\":[";
    for (std::size_t j = 0; j < hosts_[i].ranks.size(); ++j) {
      out += (j > 0 ? "," : "") + std::to_string(hosts_[i].ranks[j]);
    }
    out += "]}";
  }
  out += "],\"tree\":";
  json_group(root_, out);
  return out + "}";
}

std::vector<int> parse_emulated_hosts(const std::string& text, int size) {
  std::vector<int> sizes;
  const char* at = text.data();
  const char* const end = at + text.size();
  bool good = !text.empty();
  while (good) {
    int number = 0;
    const auto [next, error] = std::from_chars(at, end, number);
    good = error == std::errc() && number > 0;
    if (!good) break;
    sizes.push_back(number);
    if (next == end) break;
    good = *next == ',';
    at = next + 1;
  }
  const auto sum = std::accumulate(sizes.begin(), sizes.end(), 0LL);
  if (!good || sum != size) {
    throw Error(DDL_ERR_OPTION,
                "DDL_EMULATE_HOSTS='" + text + "' does not divide " + std::to_string(size) +
                    " ranks; in the environment; give the number of ranks of each host, separated by "
                    "commas, with the sum " +
                    std::to_string(size) + ", or unset it");
  }
  return sizes;
}

void emulate_host(Placement& placement, const std::vector<int>& sizes, int rank) {
  std::size_t host = 0;
  for (int first_of_next = sizes[0]; rank >= first_of_next; first_of_next += sizes[host]) ++host;
  placement.host_name = "emulated" + std::to_string(host);
  // The real key stays in: emulation never claims that ranks on different machines share memory.
  placement.host_key += '/' + placement.host_name;
}

}  // namespace ddl
