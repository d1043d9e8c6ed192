// A program that speaks MPI itself and takes only its all-reduce from DDL.
#include <cstdio>

#include "ddl_mpi.hpp"

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);

  double value = rank + 1;
  if (ddl_allreduce_mpi(nullptr, &value, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD) != DDL_SUCCESS) {
    std::fprintf(stderr, "%s\n", ddl_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  if (rank == 0) std::printf("sum of %d ranks: %g\n", size, value);

  // MPI was initialised here, so it is finalised here; ddl_finalize leaves it alone.
  ddl_finalize();
  MPI_Finalize();
}
