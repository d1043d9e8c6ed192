#pragma once

#include "support/types.hpp"
#include "transport/mpi_transport.hpp"

namespace ddl {

/// MPI's name of an element type; 16-bit floating-point types are made once, as MPI has none.
MPI_Datatype mpi_datatype(DDL_Type type);

/// MPI's name of a reduction of this type. DDL_OP_AVG is a sum: the caller divides. The 16-bit types come
/// with reductions of our own, as do minima and maxima of floating-point numbers: MPI's may lose a NaN.
MPI_Op mpi_operation(DDL_Type type, DDL_Op op);

}  // namespace ddl
