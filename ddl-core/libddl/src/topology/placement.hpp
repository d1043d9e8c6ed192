#pragma once

#include <string>

namespace ddl {

/// Where one rank runs.
struct Placement {
  std::string host_name;
  /// Ranks with equal keys can map the same shared memory.
  std::string host_key;
};

/// Host name and shared-memory identity of this process.
Placement local_placement();

}  // namespace ddl
