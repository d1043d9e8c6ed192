#pragma once

#include <vector>

#include "transport/mpi_transport.hpp"

namespace ddl {

/// Waits until all of `ranks` are here, of which this one is; messages go through comm, a communicator of
/// all. The first of them asks those that have come whether they still wait, before anybody goes on to what
/// cannot be given up: a rank whose time was over is not counted on.
/// @throws Error (DDL_ERR_TIMEOUT) that names those who did not come in time
void rendezvous(MPI_Comm comm, const std::vector<int>& ranks, double timeout_s);

/// A communicator of `ranks` of base, which must all be here. The caller frees it.
MPI_Comm communicator_of(MPI_Comm base, const std::vector<int>& ranks);

}  // namespace ddl
