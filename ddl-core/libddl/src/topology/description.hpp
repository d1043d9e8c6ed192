#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "topology/topology.hpp"

namespace ddl {

/// Deeper nesting than this is a mistake, and would exhaust the stack.
inline constexpr std::size_t kMaxTiers = 16;
/// Hosts that one description may name.
inline constexpr std::size_t kMaxDescribedHosts = 1'000'000;

/// A host of a description.
struct DescribedHost {
  std::string name;
  std::string where;  ///< for messages: "/groups/0/hosts/1", "line 7"
};

/// A group of hosts, of groups, or of both.
struct DescribedGroup {
  std::string name;
  std::vector<DescribedHost> hosts;
  std::vector<DescribedGroup> groups{};
};

/// A cluster as a file describes it: it may name more hosts than take part in the job.
struct Description {
  DescribedGroup root;
  std::vector<TierInfo> tiers;  ///< innermost (hosts) first; may be shorter than the tree is high
};

/// Tiers of the description's tree, that of the hosts included: 1 + the longest chain of groups.
std::size_t tiers_of(const DescribedGroup& group);

/**
 * The branch of a job's hosts in a described cluster. Hosts match by whole name or, where one of the two has
 * no domain, by the part before the first dot; case does not count.
 * @param source  the file, for messages
 * @throws Error (DDL_ERR_OPTION) for hosts that the description has twice or not at all
 */
Branch place_hosts(const Description& description, const std::vector<Host>& hosts, const std::string& source);

}  // namespace ddl
