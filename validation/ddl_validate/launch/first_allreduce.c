/* Starts MPI, or DDL with -DBY_DDL, makes an all-reduce of 4 KiB, and prints the slowest rank's seconds for
 * both together, counted from the beginning of main. */
#include <mpi.h>
#include <stdio.h>
#include <time.h>
#ifdef BY_DDL
#include <ddl.h>
#endif

enum { kCount = 1024 };

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

#ifdef BY_DDL
static int start(void) { return ddl_init(NULL); }
static int reduce(float* values) { return ddl_allreduce(values, kCount, DDL_TYPE_FLOAT, DDL_OP_SUM); }
static int end(void) { return ddl_finalize(); }
#else
static int start(void) {
  int provided = 0;
  /* What DDL asks for. */
  return MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
}
static int reduce(float* values) {
  return MPI_Allreduce(MPI_IN_PLACE, values, kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}
static int end(void) { return MPI_Finalize(); }
#endif

int main(void) {
  const double begun = now();
  static float values[kCount];
  int rank = 0;
  int ranks = 0;
  if (start() != 0) return 2;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (int i = 0; i < kCount; ++i) values[i] = (float)(rank + i);
  if (reduce(values) != 0) return 3;
  const double took = now() - begun;
  for (int i = 0; i < kCount; ++i) {
    const float expected = (float)ranks * (float)i + 0.5F * (float)ranks * (float)(ranks - 1);
    if (values[i] != expected) {
      fprintf(stderr, "rank %d, element %d: %g instead of %g\n", rank, i, values[i], expected);
      return 4;
    }
  }
  double slowest = took;
  MPI_Reduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("%f\n", slowest);
  return end();
}
