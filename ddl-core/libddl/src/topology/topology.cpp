#include "topology/topology.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "support/error.hpp"
#include "topology/host_names.hpp"

namespace ddl {
namespace {

/// Inner groups by height: 1 is a host's ranks.
Group make_group(std::vector<Group> children, std::string name) {
  std::sort(children.begin(), children.end(),
            [](const Group& a, const Group& b) { return a.ranks.front() < b.ranks.front(); });
  Group parent;
  for (const Group& child : children)
    parent.ranks.insert(parent.ranks.end(), child.ranks.begin(), child.ranks.end());
  std::sort(parent.ranks.begin(), parent.ranks.end());
  parent.children = std::move(children);
  parent.name = std::move(name);
  return parent;
}

void compute_heights(Branch& branch) {
  for (Branch& child : branch.children) {
    compute_heights(child);
    branch.height = std::max(branch.height, child.height + 1);
  }
}

bool has_ranks(const Branch& branch) {
  return !branch.ranks.empty() || std::any_of(branch.children.begin(), branch.children.end(), has_ranks);
}

/// Groups of equal depth: shallow branches get groups of one child above them.
Group to_group(const Branch& branch) {
  std::vector<Group> children;
  if (branch.children.empty()) {
    for (const int rank : branch.ranks) children.push_back(Group{{rank}, {}});
    return make_group(std::move(children), branch.name);
  }
  for (const Branch& child : branch.children) {
    if (!has_ranks(child)) continue;
    Group group = to_group(child);
    for (int height = child.height + 1; height < branch.height; ++height) {
      std::string name = group.name;
      std::vector<Group> only;
      only.push_back(std::move(group));
      group = make_group(std::move(only), std::move(name));
    }
    children.push_back(std::move(group));
  }
  return make_group(std::move(children), branch.name);
}

/// True when a group of this height, below or at `group` (of height `own`), has several children.
bool divides(const Group& group, int own, int height) {
  if (own == height) return group.children.size() > 1;
  return std::any_of(group.children.begin(), group.children.end(),
                     [&](const Group& child) { return divides(child, own - 1, height); });
}

/// Puts the only child of every group of this height in the group's place.
Group without_tier(Group group, int own, int height) {
  if (own == height) {
    Group child = std::move(group.children.front());
    return child;
  }
  for (Group& child : group.children) child = without_tier(std::move(child), own - 1, height);
  return group;
}

std::optional<double> either(std::optional<double> a, std::optional<double> b, bool lower) {
  if (!a || !b) return a ? a : b;
  return lower ? std::min(*a, *b) : std::max(*a, *b);
}

std::string usual_name(std::size_t tier) {
  constexpr const char* names[] = {"host", "rack", "aisle"};
  return tier < std::size(names) ? names[tier] : "tier " + std::to_string(tier + 1);
}

}  // namespace

Topology::Topology(std::vector<Host> hosts, Branch root, std::vector<TierInfo> tiers, std::string source,
                   std::vector<std::string> notes)
    : hosts_(std::move(hosts)), source_(std::move(source)), notes_(std::move(notes)) {
  std::size_t size = 0;
  for (const Host& host : hosts_) size += host.ranks.size();
  host_of_.resize(size);
  local_rank_of_.resize(size);
  for (std::size_t h = 0; h < hosts_.size(); ++h) {
    for (std::size_t i = 0; i < hosts_[h].ranks.size(); ++i) {
      const auto rank = static_cast<std::size_t>(hosts_[h].ranks[i]);
      host_of_[rank] = static_cast<int>(h);
      local_rank_of_[rank] = static_cast<int>(i);
    }
  }

  compute_heights(root);
  tiers.resize(std::max(tiers.size(), static_cast<std::size_t>(root.height)));
  root_ = to_group(root);
  int height = root.height;
  tiers.resize(static_cast<std::size_t>(height));
  std::vector<bool> named;
  for (std::size_t t = 0; t < tiers.size(); ++t) {
    named.push_back(!tiers[t].name.empty());
    if (!named[t]) tiers[t].name = usual_name(t);
  }
  for (int h = height; h > 1; --h) {
    if (divides(root_, height, h)) continue;
    root_ = without_tier(std::move(root_), height, h);
    const auto t = static_cast<std::size_t>(h - 1);
    if (h < height) {
      // What used to cross both tiers now crosses the outer one.
      TierLink& outer = tiers[t + 1].link;
      const TierLink& gone = tiers[t].link;
      outer.bandwidth_mbit = either(outer.bandwidth_mbit, gone.bandwidth_mbit, true);
      outer.latency_us = either(outer.latency_us, gone.latency_us, false);
    }
    tiers.erase(tiers.begin() + h - 1);
    named.erase(named.begin() + h - 1);
    --height;
  }
  if (tiers.size() > 1 && !named.back()) tiers.back().name = "cluster";
  for (TierInfo& tier : tiers) {
    tiers_.push_back(std::move(tier.name));
    links_.push_back(tier.link);
  }
}

std::vector<Branch> split_hosts(const std::vector<Host>& hosts, const std::vector<std::size_t>& host_order,
                                int size) {
  std::vector<Branch> leaves;
  for (const std::size_t h : host_order) {
    const Host& host = hosts[h];
    // A host may hold several of the user's "hosts": sizes are about groups of fast links, and trying p:2x2
    // on one machine is legitimate. The other way round a group would not share memory.
    const auto part = static_cast<std::size_t>(size);
    if (part == 0 || host.ranks.size() % part != 0) {
      throw Error(
          DDL_ERR_OPTION,
          "-mode says " + std::to_string(size) + " ranks a host, but host " + host.name + " has " +
              std::to_string(host.ranks.size()),
          "in -mode of DDL_OPTIONS",
          "start that many ranks on every host, or leave the sizes out to have the topology discovered");
    }
    std::vector<std::size_t> order(host.ranks.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    const auto position = [&host](std::size_t i) {
      return std::tuple(i < host.packages.size() ? host.packages[i] : -1,
                        i < host.numa_nodes.size() ? host.numa_nodes[i] : -1, host.ranks[i]);
    };
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return position(a) < position(b); });
    for (std::size_t at = 0; at < order.size(); at += part) {
      Branch leaf{host.name, {}};
      if (part < order.size()) leaf.name += "/" + std::to_string(at / part);
      for (std::size_t i = at; i < at + part; ++i) leaf.ranks.push_back(host.ranks[order[i]]);
      std::sort(leaf.ranks.begin(), leaf.ranks.end());
      leaves.push_back(std::move(leaf));
    }
  }
  return leaves;
}

Branch join_by_dims(std::vector<Branch> leaves, const std::vector<int>& dims) {
  std::vector<Branch> groups = std::move(leaves);
  for (std::size_t t = 1; t < dims.size(); ++t) {
    std::vector<Branch> parents;
    for (std::size_t at = 0; at < groups.size(); ++at) {
      if (at % static_cast<std::size_t>(dims[t]) == 0) {
        parents.push_back({usual_name(t) + " " + std::to_string(parents.size()), {}});
      }
      parents.back().children.push_back(std::move(groups[at]));
    }
    // The only one needs no name beside its tier's.
    if (parents.size() == 1) parents[0].name.clear();
    groups = std::move(parents);
  }
  if (groups.size() == 1) return std::move(groups.front());
  return Branch{"", {}, std::move(groups)};
}

Topology Topology::build(const std::vector<Placement>& placements, const std::vector<int>& dims) {
  std::vector<Host> hosts;
  std::map<std::string, std::size_t> host_by_key;
  for (std::size_t rank = 0; rank < placements.size(); ++rank) {
    const auto [it, added] = host_by_key.try_emplace(placements[rank].host_key, hosts.size());
    if (added) hosts.push_back({placements[rank].host_name, {}, {}, {}, placements[rank].host_key});
    hosts[it->second].ranks.push_back(static_cast<int>(rank));
  }
  std::vector<std::size_t> order(hosts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const auto by_name = natural_compare(hosts[a].name, hosts[b].name);
    return by_name != 0 ? by_name < 0 : hosts[a].key < hosts[b].key;
  });
  Branch root{"", {}};
  if (dims.empty()) {
    for (const std::size_t h : order) root.children.push_back({hosts[h].name, hosts[h].ranks});
  } else {
    root = join_by_dims(split_hosts(hosts, order, dims[0]), dims);
  }
  return Topology(std::move(hosts), std::move(root), {}, dims.empty() ? "hosts" : "-mode", {});
}

GpuPlace Topology::gpu_of(int rank) const {
  const Host& host = hosts_[static_cast<std::size_t>(host_of(rank))];
  const auto local = static_cast<std::size_t>(local_rank_of(rank));
  return local < host.gpus.size() ? host.gpus[local] : GpuPlace{};
}

bool Topology::share_gpu(int a, int b) const {
  const std::string& machine = hosts_[static_cast<std::size_t>(host_of(a))].machine;
  const std::string bus = gpu_of(a).bus;
  return !bus.empty() && bus == gpu_of(b).bus &&
         machine == hosts_[static_cast<std::size_t>(host_of(b))].machine;
}

bool Topology::share_island(int a, int b) const {
  if (host_of(a) != host_of(b)) return false;
  const int island = gpu_of(a).island;
  return share_gpu(a, b) || (island >= 0 && island == gpu_of(b).island);
}

MachinePosition Topology::position_of(int rank) const {
  const Host& host = hosts_[static_cast<std::size_t>(host_of(rank))];
  const auto local = static_cast<std::size_t>(local_rank_of(rank));
  const auto of = [local](const std::vector<int>& all) { return local < all.size() ? all[local] : -1; };
  return {of(host.numa_nodes), of(host.packages), of(host.caches)};
}

int Topology::emulated_domain_of(int rank) const {
  const Host& host = hosts_[static_cast<std::size_t>(host_of(rank))];
  const auto local = static_cast<std::size_t>(local_rank_of(rank));
  return local < host.emulated_domains.size() ? host.emulated_domains[local] : -1;
}

}  // namespace ddl
