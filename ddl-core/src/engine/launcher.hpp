#pragma once

#include <optional>

namespace ddl {

/// What the environment says about who started this process.
struct Launcher {
  bool present = false;              ///< a launcher that speaks PMIx or PMI started it
  std::optional<int> expected_size;  ///< the number of ranks, where the launcher tells
  std::optional<int> expected_rank;
};

Launcher detect_launcher();

}  // namespace ddl
