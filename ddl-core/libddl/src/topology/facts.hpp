#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "topology/gpu_place.hpp"
#include "topology/machine.hpp"
#include "topology/slurm.hpp"

namespace ddl {

/// The place of a host in DDL_HOST_ORDER.
struct HostOrder {
  int position = -1;       ///< -1: the host is not in the list
  std::uint64_t list = 0;  ///< hash of the list, to notice that ranks have different ones
  friend bool operator==(const HostOrder&, const HostOrder&) = default;
};

/// The place of a host in such a list, names with commas between.
HostOrder place_in(const std::string& list, const std::string& host);

/// What one rank knows of its own place.
struct RankFacts {
  std::string host_name;
  /// Ranks with equal keys can map the same shared memory.
  std::string host_key;
  /// As host_key, but of the real host also where hosts are emulated.
  std::string machine_key;
  MachinePosition position;
  std::optional<GpuPlace> gpu;
  std::optional<SlurmAddress> slurm;
  /// Why `slurm` is empty although Slurm said something; else empty.
  std::string slurm_problem;
  std::optional<HostOrder> order;
  std::vector<int> emulated_racks;  ///< as in EmulatedHost; empty without DDL_EMULATE_HOSTS
  int emulated_domain = -1;         ///< -1: without DDL_EMULATE_DOMAINS
};

/**
 * Facts of this process: host name, shared-memory identity, NUMA node, package and cache of its processors;
 * from the environment SLURM_TOPOLOGY_ADDR(_PATTERN), DDL_HOST_ORDER, DDL_RANK_GPU, DDL_EMULATE_HOSTS and
 * DDL_EMULATE_DOMAINS.
 * @param world_rank, world_size  place in MPI_COMM_WORLD, whose ranks are divided by what is emulated; with
 *        size 0 that is not looked at, and emulated hosts take no part in Slurm's topology and DDL_HOST_ORDER
 * @throws Error (DDL_ERR_OPTION) when DDL_EMULATE_HOSTS or DDL_EMULATE_DOMAINS is malformed
 */
RankFacts gather_facts(int world_rank = 0, int world_size = 0);

/// One line of JSON in ASCII, to be sent to other ranks.
std::string serialise(const RankFacts& facts);

/// @throws Error (DDL_ERR_INTERNAL) when it is not what serialise made
RankFacts parse_facts(const std::string& text);

}  // namespace ddl
