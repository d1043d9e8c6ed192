#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ddl {

/// What one rank says about where it runs; exchanged between all ranks.
struct Placement {
  std::string host_name;
  /// Ranks with equal keys can map the same shared memory.
  std::string host_key;
};

/// A group of ranks in the tree of tiers. A leaf is one rank; the children of an inner node are groups of the
/// tier below, ordered by their lowest rank, and need not be of equal size.
struct Group {
  std::vector<int> ranks;  ///< all ranks below, ascending
  std::vector<Group> children;
  bool leaf() const { return children.empty(); }
};

/// A host: ranks that share memory.
struct Host {
  std::string name;
  std::vector<int> ranks;  ///< ascending
};

/**
 * The cluster as a tree of tiers, innermost first (host, rack, aisle, …). Built from placements alone, so
 * that how ranks are numbered changes neither who shares a host nor who shares a rack.
 */
class Topology {
 public:
  /// Groups ranks by host key. With dims (ranks a host, hosts a rack, racks an aisle, aisles) hosts are
  /// further grouped, in the order of their lowest ranks.
  /// @throws Error (DDL_ERR_OPTION) when a host's ranks are not a multiple of dims[0], naming that host
  static Topology build(const std::vector<Placement>& placements, const std::vector<int>& dims);

  int size() const { return static_cast<int>(host_of_.size()); }
  /// Physical hosts, in the order of their lowest ranks.
  const std::vector<Host>& hosts() const { return hosts_; }
  int host_of(int rank) const { return host_of_[rank]; }
  int local_rank_of(int rank) const { return local_rank_of_[rank]; }
  const std::string& host_name_of(int rank) const { return hosts_[host_of_[rank]].name; }

  /// Root of the tree. Groups of the innermost inner tier (depth() == 1) are the hosts' ranks, which share
  /// memory.
  const Group& root() const { return root_; }
  /// Names of the tiers, innermost first: "host", then as many of "rack", "aisle", "cluster" as there are.
  const std::vector<std::string>& tiers() const { return tiers_; }

  /// "rank 3 (host b)".
  std::string describe_rank(int rank) const;
  /// "ranks 0, 2-4", or "rank 1".
  static std::string describe_ranks(std::vector<int> ranks);
  std::string to_json() const;

 private:
  std::vector<Host> hosts_;
  std::vector<int> host_of_;
  std::vector<int> local_rank_of_;
  Group root_;
  std::vector<std::string> tiers_;
};

/// Host name and shared-memory identity of this process.
Placement local_placement();

/// Sizes of DDL_EMULATE_HOSTS such as "3,2". @throws Error (DDL_ERR_OPTION) when they are malformed or their
/// sum is not `size`.
std::vector<int> parse_emulated_hosts(const std::string& text, int size);

/// Replaces the host of a placement by an emulated one: that of `rank` when the first sizes[0] ranks are on
/// one, and so on.
void emulate_host(Placement& placement, const std::vector<int>& sizes, int rank);

}  // namespace ddl
