#pragma once

#include <string>
#include <vector>

#include "topology/topology.hpp"
#include "transport/mpi_transport.hpp"

namespace ddl {

/// For fewer hosts racks change nothing.
inline constexpr std::size_t kFewestHostsToMeasure = 3;
/// For more, nothing is measured unless asked for.
inline constexpr std::size_t kMostHostsToMeasure = 1024;

struct MeasuredRacks {
  std::vector<std::vector<int>> groups;  ///< as TopologyRequest::measured
  std::string note;                      ///< what was found and how, for people
};

/**
 * Finds out which hosts reach each other clearly faster than the rest, in a time that is bounded whatever
 * their number: at most 2 s, and mostly much less.
 *
 * What an earlier job on the same hosts found is kept in the user's cache. It is believed if two rounds of
 * measuring agree with it within a quarter. Otherwise about 2 log2(hosts) rounds tell whether any links
 * differ by half; if so, up to 63 rounds more, in which each host meets as many others, tell the groups
 * (group_hosts_by_bandwidth); and these must show in each of three more measurements in turn, inside and
 * across: on a busy machine, or a shared network, figures of equal links may well differ by half, but not
 * every time in the same way.
 *
 * Collective over comm, of DDL's own, on which nothing else may be under way.
 *
 * @param hosts  at least kFewestHostsToMeasure and at most kMostHostsToMeasure; the same on all ranks
 * @return the same on all ranks
 * @throws Error (DDL_ERR_TIMEOUT) when a rank does not answer: comm is of no use then; DDL_ERR_MPI
 */
MeasuredRacks measure_racks(MPI_Comm comm, int rank, const std::vector<Host>& hosts);

/**
 * Finds the groups from the links between every two hosts (measure_bandwidth), in up to 10 s; for about 500
 * hosts at most. Collective over comm, on which nothing else may be under way.
 * @return as TopologyRequest::measured, the same on all ranks
 * @throws Error (DDL_ERR_OPTION) on all ranks where there are too many hosts, and as measure_racks()
 */
std::vector<std::vector<int>> measure_all_pairs(MPI_Comm comm, int rank, const std::vector<Host>& hosts);

}  // namespace ddl
