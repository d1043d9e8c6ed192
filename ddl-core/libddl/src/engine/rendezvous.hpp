#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "transport/mpi_transport.hpp"

namespace ddl {

/// Whoever notices first that ranks are late says so, and again after twice the time.
struct Late {
  double after_s = 0;
  std::function<void(const std::vector<int>&)> say;  ///< null: nobody does
};

/// Waits until all of `ranks` are here, of which this one is; messages go through comm, a communicator of
/// all. The first of them asks those that have come whether they still wait, before anybody goes on to what
/// cannot be given up: a rank whose time was over is not counted on.
/// @param kind  of rendezvous that several threads may have of the same ranks: a number for each
/// @throws Error (DDL_ERR_TIMEOUT) that names those who did not come in time
void rendezvous(MPI_Comm comm, const std::vector<int>& ranks, double timeout_s, const Late& late,
                std::uint64_t kind = 0);

/// Calls the roll of `ranks` after something that they do together has taken longer than timeout_s.
/// @throws Error (DDL_ERR_TIMEOUT) that names those who do not answer; nothing where all do
void name_missing(MPI_Comm comm, const std::vector<int>& ranks, const std::string& where, double timeout_s);

/// A communicator of `ranks` of base, which must all be here. The caller frees it.
/// @throws Error (DDL_ERR_TIMEOUT) where one has gone meanwhile
MPI_Comm communicator_of(MPI_Comm base, const std::vector<int>& ranks, double timeout_s);

}  // namespace ddl
