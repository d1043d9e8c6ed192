/**
 * @file ddl_mpi.hpp
 * DDL for programs that already speak MPI: the arguments of MPI_Allreduce, the speed of DDL.
 */
#ifndef DDL_MPI_HPP
#define DDL_MPI_HPP

// Open MPI's long-gone C++ bindings would otherwise become undefined symbols of whoever includes this.
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include "ddl.hpp"

extern "C" {

/**
 * As ddl_init (see ddl.h), over the ranks of comm instead of MPI_COMM_WORLD's. Collective over comm, of which
 * DDL keeps a duplicate. A second call succeeds and changes nothing where its communicator has the same ranks
 * in the same order.
 *
 * @return as ddl_init, and DDL_ERR_STATE where MPI is not initialised, or DDL is, over other ranks;
 *         DDL_ERR_ARGUMENT for MPI_COMM_NULL.
 */
DDL_API int ddl_init_mpi(const char* options, MPI_Comm comm);

/**
 * Reduces buf over the ranks of comm, in place; complete on return. Collective over comm.
 *
 * Initialises DDL with options (NULL: DDL_OPTIONS) if that has not happened; that first call is then
 * collective over MPI_COMM_WORLD. The first call on a communicator other than the one that DDL was
 * initialised over maps its topology, which is kept until MPI_Comm_free.
 *
 * Calls on one communicator are serialised. Those on different ones, also of the same ranks, may be under way
 * at once and in any order, from several threads, where MPI was initialised with MPI_THREAD_MULTIPLE.
 *
 * @param datatype  MPI_FLOAT, MPI_DOUBLE, MPI_INT, MPI_INT32_T, MPI_LONG, MPI_LONG_LONG or MPI_INT64_T
 * @param op        MPI_SUM, MPI_MIN, MPI_MAX or MPI_PROD
 * @return DDL_SUCCESS or a DDL_ERR_* code (DDL_ERR_ARGUMENT for another datatype or op); see
 * ddl_last_error().
 */
DDL_API int ddl_allreduce_mpi(const char* options, void* buf, size_t count, MPI_Datatype datatype, MPI_Op op,
                              MPI_Comm comm);

}  // extern "C"

#endif
