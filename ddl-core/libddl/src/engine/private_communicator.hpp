#pragma once

#include "transport/mpi_transport.hpp"

namespace ddl {

/// A communicator of the same ranks in the same order, for DDL alone. The caller frees it.
///
/// With MPI_THREAD_MULTIPLE it is made by a call that does not count as a collective of comm, so that other
/// threads may have collectives on comm under way meanwhile.
///
/// @param timeout_s  until all ranks must have come
/// @throws Error (DDL_ERR_TIMEOUT) where they have not: comm is of no use to DDL then; DDL_ERR_MPI
MPI_Comm private_communicator(MPI_Comm comm, double timeout_s);

}  // namespace ddl
