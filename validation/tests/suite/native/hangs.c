// A host that stops answering: preloaded, it makes a rank stand still once it has a large message to send.
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

// as in Open MPI, whose handles are pointers
typedef int Isend(const void* buffer, int count, void* type, int to, int tag, void* comm, void** request);

enum { LARGE = 16 << 10 };

int MPI_Isend(const void* buffer, int count, void* type, int to, int tag, void* comm, void** request) {
  // Python has loaded it for itself, out of the reach of a library that was there before
  void* library = dlopen("libmpi.so.40", RTLD_NOLOAD | RTLD_NOW);
  Isend* send = library == NULL ? NULL : (Isend*)dlsym(library, "PMPI_Isend");
  if (send == NULL) abort();
  while (count >= LARGE) pause();
  return send(buffer, count, type, to, tag, comm, request);
}
