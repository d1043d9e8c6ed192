#pragma once

#include <string>

#include "topology/description.hpp"

namespace ddl {

/// Larger texts are refused: they are no topology files.
inline constexpr std::size_t kMaxTopologyFileBytes = std::size_t{64} << 20;

/**
 * Reads a topology file: JSON as docs/cluster/topology.md and docs/reference/topology.schema.json
 * describe it, or Slurm's topology.conf; a text whose first visible character is '{' is JSON.
 * @param text  what the file holds
 * @param path  its name, for messages
 * @throws Error (DDL_ERR_OPTION) that names what is wrong, its JSON path or line, and the remedy
 */
Description parse_topology_file(const std::string& text, const std::string& path);

}  // namespace ddl
