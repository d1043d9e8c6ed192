#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topology/description.hpp"

namespace ddl {

/// What SLURM_TOPOLOGY_ADDR says of one node.
struct SlurmAddress {
  std::vector<std::string> switches;  ///< outermost first; empty texts where a level has no switch
  std::string node;
};

/**
 * Reads SLURM_TOPOLOGY_ADDR ("s0.s2.node7") by SLURM_TOPOLOGY_ADDR_PATTERN ("switch.switch.node"); see
 * srun(1). The node's name may have dots.
 * @return nothing when the two do not belong together
 */
std::optional<SlurmAddress> parse_topology_address(std::string_view address, std::string_view pattern);

/**
 * Reads Slurm's topology.conf (topology/tree and the groups of topology/block): lines `SwitchName=s0
 * Switches=s[1-2]`, `SwitchName=s1 Nodes=n[1-4]`, `BlockName=b1 Nodes=…`; see topology.conf(5). Keys are
 * case-insensitive, # begins a comment, a backslash at the end joins lines. LinkSpeed, which Slurm does not
 * use, and BlockSizes are ignored.
 * @throws Error (DDL_ERR_OPTION) that names what is wrong, the line, and the remedy
 */
Description parse_topology_conf(const std::string& text, const std::string& path);

}  // namespace ddl
