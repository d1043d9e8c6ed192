/* Every rank adds its number; prints "rank size sum". Fails unless the sum is right. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char** argv) {
  int rank, size, provided;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  static double values[100000];
  for (int i = 0; i < 100000; i++) values[i] = rank + i;
  MPI_Allreduce(MPI_IN_PLACE, values, 100000, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  int wrong = provided != MPI_THREAD_MULTIPLE;
  for (int i = 0; i < 100000; i++) wrong += values[i] != size * (size - 1) / 2 + (double)size * i;
  printf("%d %d %g\n", rank, size, values[0]);
  MPI_Finalize();
  return wrong ? 1 : 0;
}
