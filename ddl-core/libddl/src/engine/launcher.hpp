#pragma once

#include <optional>
#include <string>

namespace ddl {

/// What the environment says about who started this process.
struct Launcher {
  bool present = false;              ///< a launcher that speaks PMIx or PMI started it
  std::optional<int> expected_size;  ///< the number of ranks, where the launcher tells
  std::optional<int> expected_rank;
  /// Where none did, but the environment tells of other ranks: what it says, and how to start them with MPI.
  /// Each of them would be a world of size 1.
  std::string ranks_without_mpi;
  std::string remedy;
};

Launcher detect_launcher();

}  // namespace ddl
