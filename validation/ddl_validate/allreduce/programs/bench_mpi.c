/* MPI_Allreduce of the MPI library that this is compiled with. */
#include <mpi.h>
#include <stdio.h>

#include "timing.h"

static int allreduce(float* values, size_t count) {
  return MPI_Allreduce(MPI_IN_PLACE, values, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static const char* error(int code) {
  static char text[MPI_MAX_ERROR_STRING];
  int length;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) snprintf(text, sizeof text, "MPI error %d", code);
  return text;
}

int main(int argc, char** argv) {
  static char library[MPI_MAX_LIBRARY_VERSION_STRING];
  int length;
  if (timing_bind()) return 2;
  MPI_Init(&argc, &argv);
  MPI_Get_library_version(library, &length);
  const struct timing_subject subject = {library, allreduce, error, NULL};
  int rc = timing_run(argc, argv, &subject);
  MPI_Finalize();
  return rc;
}
