#pragma once

#include <sched.h>

#include <array>
#include <optional>
#include <vector>

#include "engine/options.hpp"
#include "support/error.hpp"
#include "topology/topology.hpp"
#include "transport/mpi_transport.hpp"

namespace ddl {

/// What every rank tells all others when a communicator is made.
struct PlacementRecord {
  std::array<char, 512> machine_key;  ///< the host's, also when hosts are emulated
  std::array<char, 1024> options;     ///< what of DDL_OPTIONS all ranks must agree on
  cpu_set_t processors;
};

/// The records of all ranks, by rank. Collective over base, of `size` ranks.
/// @throws Error (DDL_ERR_OPTION) the same on all ranks, when their options differ
std::vector<PlacementRecord> exchange_placements(MPI_Comm base, int size, const Options& options);

/// True when the ranks of this machine may together use fewer processors than there are ranks, so that a
/// spinning rank would keep another from working.
bool is_oversubscribed(const std::vector<PlacementRecord>& records, int rank);

/// Finds the tree of tiers, from the sources that the options name. Collective over base.
/// @throws Error the same on all ranks
Topology discover_topology(MPI_Comm base, int rank, const Options& options);

/// Ends a step in which any rank may have failed: all go on, or all throw the error of the last that failed.
/// Collective over base. @param error  this rank's, if it failed
void agree_on_success(MPI_Comm base, int rank, const Topology& topology, const std::optional<Error>& error);

}  // namespace ddl
