#pragma once

#include <optional>
#include <string>
#include <vector>

#include "topology/topology.hpp"

namespace ddl {

/// What one rank says about itself, a line of JSON for discover(). gather_facts() (facts.hpp) says what is in
/// it. @throws Error (DDL_ERR_OPTION) when DDL_EMULATE_HOSTS is malformed
std::string local_facts(int world_rank = 0, int world_size = 0);

/// Where the topology is to come from.
struct TopologyRequest {
  /// Sizes of -mode, innermost first: ranks a host, hosts a rack, racks an aisle, …; empty: none given. Their
  /// product must be the number of ranks.
  std::vector<int> dims;
  /// "": what is found; "none": hosts only; "measure": by `measured`; else what messages call the topology
  /// file.
  std::string source;
  /// What that file holds; the same on all ranks, so one reads it and sends it to the others.
  std::string file_text;
  /// Groups of hosts (indices of Topology::hosts()) as group_hosts_by_bandwidth makes them; every host once.
  std::optional<std::vector<std::vector<int>>> measured;
  /// For Topology::notes().
  std::vector<std::string> notes{};
};

/**
 * The cluster's tree, from the first of these that says something: sizes of -mode, a topology file or a
 * measurement, Slurm's topology, the machines (ranks that share memory are a host).
 *
 * A pure function: the same facts and request give the same tree. Numbering the ranks otherwise gives the
 * same groups. With sizes, hosts are taken in the order of DDL_HOST_ORDER, or else in the natural order of
 * their names.
 *
 * A scheduler's information that contradicts itself is left out and topology.notes() says why; a request that
 * cannot be fulfilled is an error.
 *
 * @param facts  local_facts() of every rank, by rank; at least one
 * @throws Error (DDL_ERR_OPTION) that names what is wrong, where, and the remedy
 */
Topology discover(const std::vector<std::string>& facts, const TopologyRequest& request);

}  // namespace ddl
