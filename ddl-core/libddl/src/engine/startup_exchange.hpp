#pragma once

#include <sched.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/options.hpp"
#include "support/error.hpp"
#include "topology/topology.hpp"
#include "transport/tree_exchange.hpp"

namespace ddl {

/// What every rank tells all others when a communicator is made.
struct StartupRecord {
  std::string release;  ///< of DDL
  std::string options;  ///< what of DDL_OPTIONS all ranks must agree on
  std::string facts;    ///< as local_facts() of the topology tells
  std::string machine;  ///< key of the real host, also where hosts are emulated
  cpu_set_t processors;
  std::uint64_t nonce;     ///< random
  std::uint64_t shm_free;  ///< bytes of the machine's /dev/shm
};

/// The records of all ranks, by rank. Collective over the tree's members.
/// @throws Error (DDL_ERR_OPTION, DDL_ERR_LAUNCH) the same on all ranks, when their options, or releases,
/// differ
std::vector<StartupRecord> exchange_records(const TreeExchange& tree, const Options& options);

/// True when the ranks of this machine may together use fewer processors than there are ranks, so that a
/// spinning rank would keep another from working.
bool is_oversubscribed(const std::vector<StartupRecord>& records, int rank);

/// Staging memory of a rank: as much as leaves half of every machine's free /dev/shm to others, from
/// kLeastStageBytes to `most`. The same on all ranks.
std::size_t stage_bytes_for(const std::vector<StartupRecord>& records, std::size_t most);

/// Finds the tree of tiers, from the sources that the options name. Collective over comm, of DDL's own, whose
/// ranks are the tree's members.
/// @throws Error the same on all ranks
Topology discover_topology(MPI_Comm comm, const TreeExchange& tree, int rank,
                           const std::vector<StartupRecord>& records, const Options& options);

/// Ends a step in which any rank may have failed: all go on, or all throw the error of the first that failed.
/// Collective over the tree's members. @param error  this rank's, if it failed
void agree_on_success(const TreeExchange& tree, int rank, const Topology& topology,
                      const std::optional<Error>& error);

}  // namespace ddl
