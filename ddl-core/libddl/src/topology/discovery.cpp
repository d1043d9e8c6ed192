#include "topology/discovery.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "support/error.hpp"
#include "topology/facts.hpp"
#include "topology/host_names.hpp"
#include "topology/topology_file.hpp"

namespace ddl {
namespace {

using Notes = std::vector<std::string>;

/// Ranks by host, and what the first rank of each said.
struct Job {
  std::vector<Host> hosts;
  std::vector<RankFacts> first;  ///< by host
  std::vector<RankFacts> ranks;
};

Job gather_hosts(const std::vector<std::string>& texts) {
  Job job;
  std::map<std::string, std::size_t> host_by_key;
  for (const std::string& text : texts) {
    job.ranks.push_back(parse_facts(text));
    const RankFacts& facts = job.ranks.back();
    const auto [it, added] = host_by_key.try_emplace(facts.host_key, job.hosts.size());
    if (added) {
      job.hosts.push_back({facts.host_name, {}, {}, {}, facts.host_key, {}, facts.machine_key});
      job.first.push_back(facts);
    }
    Host& host = job.hosts[it->second];
    host.ranks.push_back(static_cast<int>(job.ranks.size()) - 1);
    host.numa_nodes.push_back(facts.position.numa_node);
    host.packages.push_back(facts.position.package);
    host.caches.push_back(facts.position.cache);
    host.emulated_domains.push_back(facts.emulated_domain);
    host.gpus.push_back(facts.gpu.value_or(GpuPlace{}));
  }
  return job;
}

Branch leaf_of(const Host& host) { return {host.name, host.ranks}; }

/// Calls `differ(host, rank)` for the first rank that does not say what its host's first rank says.
template <class Same, class Differ>
bool all_same_in_hosts(const Job& job, Same&& same, Differ&& differ) {
  for (std::size_t h = 0; h < job.hosts.size(); ++h) {
    for (const int rank : job.hosts[h].ranks) {
      if (same(job.ranks[static_cast<std::size_t>(rank)], job.first[h])) continue;
      differ(job.hosts[h], rank);
      return false;
    }
  }
  return true;
}

/// Indices of hosts in the order of DDL_HOST_ORDER, or of their names.
std::vector<std::size_t> host_order(const Job& job, Notes& notes) {
  std::string problem;
  bool listed = std::any_of(job.ranks.begin(), job.ranks.end(),
                            [](const RankFacts& facts) { return facts.order.has_value(); });
  if (listed) {
    for (std::size_t rank = 0; rank < job.ranks.size() && problem.empty(); ++rank) {
      const RankFacts& facts = job.ranks[rank];
      if (!facts.order || facts.order->list != job.ranks[0].order.value_or(HostOrder{}).list) {
        problem = "rank " + std::to_string(facts.order ? rank : 0) + " has another list than rank " +
                  std::to_string(facts.order ? 0 : rank) + ", or none";
      } else if (facts.order->position < 0) {
        problem = "host " + facts.host_name + " is not in it";
      }
    }
    if (!problem.empty()) {
      notes.push_back("DDL_HOST_ORDER is not used, as " + problem +
                      ": hosts are grouped in the order of their names");
      listed = false;
    }
  }
  std::vector<std::size_t> order(job.hosts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    if (listed && job.first[a].order->position != job.first[b].order->position) {
      return job.first[a].order->position < job.first[b].order->position;
    }
    const int by_name = natural_compare(job.hosts[a].name, job.hosts[b].name);
    return by_name != 0 ? by_name < 0 : job.hosts[a].key < job.hosts[b].key;
  });
  return order;
}

/// The child with this name, made where there is none.
Branch& child_of(Branch& parent, const std::string& name) {
  const auto found = std::find_if(parent.children.begin(), parent.children.end(), [&](const Branch& child) {
    return child.name == name && child.ranks.empty();
  });
  return found != parent.children.end() ? *found : parent.children.emplace_back(Branch{name, {}});
}

/// Slurm's switches above the job's hosts; nothing when Slurm said nothing, or nothing that can be used.
std::optional<Branch> slurm_tree(const Job& job, Notes& notes) {
  // Without a topology plug-in Slurm gives the node alone.
  const bool said = std::any_of(job.ranks.begin(), job.ranks.end(), [](const RankFacts& facts) {
    return (facts.slurm && !facts.slurm->switches.empty()) || !facts.slurm_problem.empty();
  });
  if (!said) return std::nullopt;
  const auto refuse = [&notes](const std::string& problem) {
    notes.push_back("Slurm's topology is not used: " + problem);
    return std::nullopt;
  };
  for (std::size_t rank = 0; rank < job.ranks.size(); ++rank) {
    if (job.ranks[rank].slurm) continue;
    const std::string& problem = job.ranks[rank].slurm_problem;
    return refuse(problem.empty() ? "rank " + std::to_string(rank) + " has no SLURM_TOPOLOGY_ADDR"
                                  : problem + " on rank " + std::to_string(rank));
  }
  std::string differing;
  all_same_in_hosts(
      job,
      [](const RankFacts& a, const RankFacts& b) {
        return a.slurm->node == b.slurm->node && a.slurm->switches == b.slurm->switches;
      },
      [&](const Host& host, int rank) {
        differing = "rank " + std::to_string(rank) + " has another SLURM_TOPOLOGY_ADDR than rank " +
                    std::to_string(host.ranks.front()) + " of the same host " + host.name;
      });
  if (!differing.empty()) return refuse(differing);
  // A launcher that passes the variable of its own node to all ranks would put all hosts into one rack.
  std::map<std::string, std::size_t> host_by_node;
  for (std::size_t h = 0; h < job.hosts.size(); ++h) {
    const auto [it, added] = host_by_node.try_emplace(job.first[h].slurm->node, h);
    if (added || job.hosts[it->second].name == job.hosts[h].name) continue;
    return refuse("SLURM_TOPOLOGY_ADDR names node " + it->first + " on host " + job.hosts[it->second].name +
                  " and on host " + job.hosts[h].name);
  }
  Branch root{"", {}};
  for (std::size_t h = 0; h < job.hosts.size(); ++h) {
    Branch* at = &root;
    for (const std::string& name : job.first[h].slurm->switches) {
      if (!name.empty()) at = &child_of(*at, name);
    }
    at->children.push_back(leaf_of(job.hosts[h]));
  }
  return root;
}

/// Racks of DDL_EMULATE_HOSTS; just the hosts where it has none.
Branch emulated_tree(const Job& job) {
  Branch root{"", {}};
  for (std::size_t h = 0; h < job.hosts.size(); ++h) {
    Branch* at = &root;
    for (const int rack : job.first[h].emulated_racks)
      at = &child_of(*at, "emulated " + std::to_string(rack));
    at->children.push_back(leaf_of(job.hosts[h]));
  }
  return root;
}

Branch measured_tree(const Job& job, const std::vector<std::vector<int>>& groups,
                     const std::vector<std::size_t>& order) {
  Branch root{"", {}};
  std::vector<bool> seen(job.hosts.size(), false);
  std::vector<std::size_t> place(job.hosts.size());
  for (std::size_t i = 0; i < order.size(); ++i) place[order[i]] = i;
  for (const std::vector<int>& group : groups) {
    Branch branch{"", {}};
    for (const int h : group) {
      const bool known = h >= 0 && static_cast<std::size_t>(h) < job.hosts.size();
      if (!known || seen[static_cast<std::size_t>(h)]) {
        throw Error(DDL_ERR_INTERNAL,
                    "the measured groups have host " + std::to_string(h) + " " +
                        (known ? "twice" : "of " + std::to_string(job.hosts.size())),
                    "in the discovery of the topology", "please report this defect");
      }
      seen[static_cast<std::size_t>(h)] = true;
      branch.children.push_back(leaf_of(job.hosts[static_cast<std::size_t>(h)]));
    }
    const auto first = std::min_element(group.begin(), group.end(), [&](int a, int b) {
      return place[static_cast<std::size_t>(a)] < place[static_cast<std::size_t>(b)];
    });
    // Names must not follow the ranks either.
    if (first != group.end()) {
      if (groups.size() > 1) branch.name = "around " + job.hosts[static_cast<std::size_t>(*first)].name;
      root.children.push_back(std::move(branch));
    }
  }
  if (const auto missing = std::find(seen.begin(), seen.end(), false); missing != seen.end()) {
    throw Error(
        DDL_ERR_INTERNAL,
        "the measured groups lack host " + job.hosts[static_cast<std::size_t>(missing - seen.begin())].name,
        "in the discovery of the topology", "please report this defect");
  }
  return root;
}

}  // namespace

std::string local_facts(int world_rank, int world_size) {
  return serialise(gather_facts(world_rank, world_size));
}

Topology discover(const std::vector<std::string>& facts, const TopologyRequest& request) {
  Job job = gather_hosts(facts);
  Notes notes = request.notes;
  if (!request.dims.empty()) {
    if (!request.source.empty() && request.source != "none") {
      notes.push_back(
          "the sizes of -mode come before " +
          (request.source == "measure" ? std::string("a measurement") : "topology file " + request.source) +
          ", which is not used");
    }
    const std::vector<std::size_t> order = host_order(job, notes);
    Branch root = join_by_dims(split_hosts(job.hosts, order, request.dims[0]), request.dims);
    return Topology(std::move(job.hosts), std::move(root), {}, "-mode", std::move(notes));
  }
  if (request.source == "measure") {
    if (!request.measured) {
      Branch root = emulated_tree({job.hosts, std::vector<RankFacts>(job.hosts.size()), {}});
      return Topology(std::move(job.hosts), std::move(root), {}, "hosts", std::move(notes));
    }
    Notes unused;
    Branch root = measured_tree(job, *request.measured, host_order(job, unused));
    return Topology(std::move(job.hosts), std::move(root), {}, "measurement", std::move(notes));
  }
  if (!request.source.empty() && request.source != "none") {
    Description description = parse_topology_file(request.file_text, request.source);
    Branch root = place_hosts(description, job.hosts, "topology file " + request.source);
    return Topology(std::move(job.hosts), std::move(root), std::move(description.tiers),
                    "topology file " + request.source, std::move(notes));
  }
  if (request.source != "none") {
    if (std::optional<Branch> root = slurm_tree(job, notes)) {
      return Topology(std::move(job.hosts), std::move(*root), {}, "Slurm", std::move(notes));
    }
    const bool racks = !job.first[0].emulated_racks.empty();
    Branch root = emulated_tree(job);
    return Topology(std::move(job.hosts), std::move(root), {}, racks ? "DDL_EMULATE_HOSTS" : "hosts",
                    std::move(notes));
  }
  for (RankFacts& first : job.first) first.emulated_racks.clear();
  Branch root = emulated_tree(job);
  return Topology(std::move(job.hosts), std::move(root), {}, "hosts", std::move(notes));
}

}  // namespace ddl
