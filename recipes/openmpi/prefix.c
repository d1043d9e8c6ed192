/* Tells Open MPI, PMIx and PRRTE where their files are: two folders above this library.
 *
 * The three were configured for a prefix that exists on no machine, and read OPAL_PREFIX, PMIX_PREFIX and
 * PRTE_PREFIX instead. A value that already points to an installation stays, because it is somebody's choice;
 * one that points to nothing here (leaked in from outside of a container, or from a moved environment) would
 * only break, so it is replaced.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void choose(const char* variable, const char* prefix, const char* landmark) {
  char path[PATH_MAX];
  const char* given = getenv(variable);
  if (given) {
    int length = snprintf(path, sizeof path, "%s/%s", given, landmark);
    if (length > 0 && (size_t)length < sizeof path && access(path, R_OK) == 0) return;
  }
  setenv(variable, prefix, 1);
}

__attribute__((constructor)) static void tell_prefix(void) {
  char prefix[PATH_MAX];
  Dl_info self;
  if (!dladdr((void*)tell_prefix, &self) || !self.dli_fname || !realpath(self.dli_fname, prefix)) return;
  for (int up = 0; up < 3; up++) { /* the file's name, openmpi/, lib/ */
    char* slash = strrchr(prefix, '/');
    if (!slash || slash == prefix) return;
    *slash = '\0';
  }
  choose("OPAL_PREFIX", prefix, "share/openmpi/help-mpi-runtime.txt");
  choose("PMIX_PREFIX", prefix, "share/pmix/help-pmix-runtime.txt");
  choose("PRTE_PREFIX", prefix, "share/prte/help-prte-runtime.txt");
}
