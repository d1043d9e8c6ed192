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

/// A rank written in Python marks its environment with its process and job, and takes the job's name out of
/// it: programs that it starts inherit the rest of the launcher's variables, but are no ranks. A launcher
/// started from within makes another job.
bool child_of_rank();

Launcher detect_launcher();

}  // namespace ddl
