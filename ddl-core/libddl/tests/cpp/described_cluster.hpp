#pragma once

#include <string>
#include <vector>

#include "topology/topology.hpp"

namespace ddl {

/// hosts[i] ranks on host i; dims as in -mode, or empty.
inline Topology cluster(const std::vector<int>& hosts, const std::vector<int>& dims = {}) {
  std::vector<Placement> placements;
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    for (int i = 0; i < hosts[h]; ++i) placements.push_back({"h" + std::to_string(h), std::to_string(h)});
  }
  return Topology::build(placements, dims);
}

}  // namespace ddl
