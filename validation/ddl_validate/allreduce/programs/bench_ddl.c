/* ddl_allreduce, with the options of the environment variable DDL_OPTIONS. */
#include <ddl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "timing.h"

static int allreduce(float* values, size_t count) {
  return ddl_allreduce(values, count, DDL_TYPE_FLOAT, DDL_OP_SUM);
}

static const char* error(int code) {
  (void)code;
  return ddl_last_error();
}

static const char* describe(void) {
  static char* text;
  size_t needed = 0;
  if (ddl_describe(NULL, 0, &needed) != DDL_SUCCESS) return NULL;
  free(text);
  text = malloc(needed);
  return text && ddl_describe(text, needed, NULL) == DDL_SUCCESS ? text : NULL;
}

int main(int argc, char** argv) {
  char library[64];
  if (timing_bind()) return 2;
  if (ddl_init(NULL) != DDL_SUCCESS) {
    fprintf(stderr, "%s\n", ddl_last_error());
    return 4;
  }
  int initialized;
  MPI_Initialized(&initialized);
  if (!initialized)
    MPI_Init(&argc, &argv); /* DDL leaves MPI alone where no launcher has started the program */
  snprintf(library, sizeof library, "DDL %s", ddl_version());
  const struct timing_subject subject = {library, allreduce, error, describe};
  int rc = timing_run(argc, argv, &subject);
  if (ddl_finalize() != DDL_SUCCESS && rc == 0) {
    fprintf(stderr, "%s\n", ddl_last_error());
    rc = 4;
  }
  int finalized;
  MPI_Finalized(&finalized);
  if (!finalized) MPI_Finalize();
  return rc;
}
