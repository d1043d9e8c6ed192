#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "topology/machine.hpp"
#include "topology/topology.hpp"

namespace ddl {

/// Up to so many ranks of a host each look at all others. A domain has at most as many.
inline constexpr std::size_t kMostInDomain = 16;

/**
 * Divides the ranks of a host into domains of ranks that are near each other: those of a processor socket;
 * where these are too many of a NUMA node, and then of a cache of the last level. What still has too many
 * ranks, or ranks that are not bound to one place, is divided into equal runs, of at most half as many.
 *
 * @return the domain of each, from 0; empty where there are too few to be divided
 */
std::vector<std::size_t> divide_host(const std::vector<MachinePosition>& positions);

/// The division of ranks of one host; that of DDL_EMULATE_DOMAINS where the job has it. The same on all
/// ranks.
std::vector<std::size_t> domains_of(const Topology& topology, const std::vector<int>& ranks);

/// Ranks a domain of DDL_EMULATE_DOMAINS; 0: none. @throws Error (DDL_ERR_OPTION) when it is not a number
int parse_emulated_domains(const std::string& text);

}  // namespace ddl
