#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "topology/gpu_place.hpp"
#include "topology/machine.hpp"
#include "topology/placement.hpp"

namespace ddl {

/// A group of ranks in the tree of tiers. A leaf is one rank; the children of an inner node are groups of the
/// tier below, ordered by their lowest rank, and need not be of equal size.
struct Group {
  std::vector<int> ranks;  ///< all ranks below, ascending
  std::vector<Group> children;
  std::string name{};  ///< as its source calls it ("h1", "rack7"); may be empty
  bool leaf() const { return children.empty(); }
  /// The ranks of a host, or one rank that is alone.
  bool innermost() const { return leaf() || children.front().leaf(); }
};

/// A host: ranks that share memory.
struct Host {
  std::string name;
  std::vector<int> ranks;         ///< ascending
  std::vector<int> numa_nodes{};  ///< of each rank's processors; -1: more than one, or not known
  std::vector<int> packages{};    ///< processor sockets, likewise
  std::string key{};              ///< its shared-memory identity, which no other host has
  /// The GPU of each rank, its bus empty where there is none, or it is not known.
  std::vector<GpuPlace> gpus{};
  std::string machine{};      ///< as key, but of the real host also where hosts are emulated
  std::vector<int> caches{};  ///< of the last level, of each rank's processors: as in MachinePosition
  std::vector<int> emulated_domains{};  ///< of DDL_EMULATE_DOMAINS, of each rank
};

/// What is known beforehand of the link that each child of a group has to its siblings.
struct TierLink {
  std::optional<double> bandwidth_mbit;  ///< in each direction, 10^6 bit/s
  std::optional<double> latency_us;      ///< of a message, one way, microseconds
  bool known() const { return bandwidth_mbit || latency_us; }
};

/// A description of the cluster before it becomes a tree of uniform depth: a branch without children is a set
/// of ranks that share memory.
struct Branch {
  std::string name;
  std::vector<int> ranks;  ///< only where there are no children
  std::vector<Branch> children{};
  int height = 1;  ///< tiers below and with it, where the description has more of them than the job uses
};

/// The tiers of a description, innermost (hosts) first. An empty name stands for the usual one.
struct TierInfo {
  std::string name;
  TierLink link{};
};

/**
 * The cluster as a tree of tiers, innermost first (host, rack, aisle, …), any number of them and of any
 * sizes. All branches are equally deep: where a description's is shallower, groups of one child stand in
 * between. A tier in which no group has two children is left out. How ranks are numbered changes neither who
 * shares a host nor who shares a rack. Immutable, and so may be read by several threads.
 */
class Topology {
 public:
  /// Of no rank: to be assigned to.
  Topology() = default;

  /// Groups ranks by host key. With dims (ranks a host, hosts a rack, racks an aisle, aisles) hosts are
  /// further grouped, in the natural order of their names.
  /// @throws Error (DDL_ERR_OPTION) when a host's ranks are not a multiple of dims[0], naming that host
  static Topology build(const std::vector<Placement>& placements, const std::vector<int>& dims);

  /// From a description.
  /// @param hosts   in the order of their lowest ranks; together they hold the ranks 0 … n-1
  /// @param root    leaves are hosts or parts of hosts; every rank is in exactly one
  /// @param tiers   names and links by height; tiers[0] is the hosts'. May be shorter than the tree is high.
  /// @param source  where the description comes from, in words
  /// @param notes   what a user should know of how it was chosen, each a sentence
  Topology(std::vector<Host> hosts, Branch root, std::vector<TierInfo> tiers, std::string source,
           std::vector<std::string> notes);

  int size() const { return static_cast<int>(host_of_.size()); }
  /// Physical hosts, in the order of their lowest ranks.
  const std::vector<Host>& hosts() const { return hosts_; }
  int host_of(int rank) const { return host_of_[static_cast<std::size_t>(rank)]; }
  int local_rank_of(int rank) const { return local_rank_of_[static_cast<std::size_t>(rank)]; }
  const std::string& host_name_of(int rank) const {
    return hosts_[static_cast<std::size_t>(host_of(rank))].name;
  }
  /// NUMA node that all processors of the rank are on; -1 when there is none, or it is not known.
  int numa_node_of(int rank) const { return position_of(rank).numa_node; }
  /// Likewise its socket and cache.
  MachinePosition position_of(int rank) const;
  /// Of DDL_EMULATE_DOMAINS; -1 without.
  int emulated_domain_of(int rank) const;
  /// The rank's GPU, with an empty bus where there is none, or it is not known.
  GpuPlace gpu_of(int rank) const;
  /// Whether both ranks use the same GPU, also where it serves several emulated hosts.
  bool share_gpu(int a, int b) const;
  /// Whether NVLink joins the GPUs of both ranks (which may be one GPU), in one host.
  bool share_island(int a, int b) const;

  /// Root of the tree. Groups of the innermost inner tier (depth() == 1) are the hosts' ranks, which share
  /// memory.
  const Group& root() const { return root_; }
  /// Names of the tiers, innermost first: "host", then those of the source, or as many of "rack", "aisle",
  /// "tier 4", … as there are; the outermost of several is "cluster" where the source does not name it.
  const std::vector<std::string>& tiers() const { return tiers_; }
  /// links()[t]: the link of each child of a group of tiers()[t]. Of tier "host" that is a rank's to the
  /// memory of its host, of the next tier a host's link, and so on.
  const std::vector<TierLink>& links() const { return links_; }

  /// Where the tree comes from: "-mode", "topology file F", "Slurm", "measurement", "hosts", ….
  const std::string& source() const { return source_; }
  /// Sentences on sources that were found but not used, and why.
  const std::vector<std::string>& notes() const { return notes_; }

  /// "rank 3 (host b)".
  std::string describe_rank(int rank) const;
  /// "ranks 0, 2-4", or "rank 1".
  static std::string describe_ranks(std::vector<int> ranks);
  /// One JSON object: tiers, links, source, notes, hosts, groups (names and ranks) and the nested tree of
  /// ranks. docs/cluster/topology.md describes it.
  std::string to_json() const;
  /// The tree as indented lines that a person reads, each ended by a newline.
  std::string to_text() const;

 private:
  std::vector<Host> hosts_;
  std::vector<int> host_of_;
  std::vector<int> local_rank_of_;
  Group root_;
  std::vector<std::string> tiers_;
  std::vector<TierLink> links_;
  std::string source_;
  std::vector<std::string> notes_;
};

/// Leaves for -mode: every host's ranks in groups of `size`, neighbours in the machine (package, NUMA node)
/// together; in the order of `host_order` (indices of hosts).
/// @throws Error (DDL_ERR_OPTION) when a host's ranks are not a multiple of size, naming that host
std::vector<Branch> split_hosts(const std::vector<Host>& hosts, const std::vector<std::size_t>& host_order,
                                int size);

/// The tree of -mode: joins `leaves`, neighbours first, dims[1] a rack, dims[2] racks an aisle, ….
Branch join_by_dims(std::vector<Branch> leaves, const std::vector<int>& dims);

}  // namespace ddl
