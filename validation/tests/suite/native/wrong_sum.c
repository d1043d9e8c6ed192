// A host that passes on something else than it was given: preloaded, it flips bits in every large message
// that it sends by MPI.
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>

// as in Open MPI, whose handles are pointers
typedef int TypeSize(void* type, int* size);
typedef int Isend(const void* buffer, int count, void* type, int to, int tag, void* comm, void** request);

enum { LARGE = 16 << 10, EVERY = 4096, BIT = 0x40 };

int MPI_Isend(const void* buffer, int count, void* type, int to, int tag, void* comm, void** request) {
  // Python has loaded it for itself, out of the reach of a library that was there before
  void* library = dlopen("libmpi.so.40", RTLD_NOLOAD | RTLD_NOW);
  if (library == NULL) abort();
  TypeSize* size_of = (TypeSize*)dlsym(library, "PMPI_Type_size");
  Isend* send = (Isend*)dlsym(library, "PMPI_Isend");
  if (size_of == NULL || send == NULL) abort();
  int size = 0;
  size_of(type, &size);
  size_t bytes = (size_t)count * (size_t)size;
  if (bytes >= LARGE) {
    // the third byte of a number: its upper digits in every type that is summed
    for (size_t at = 2; at < bytes; at += EVERY) ((unsigned char*)buffer)[at] ^= BIT;
  }
  return send(buffer, count, type, to, tag, comm, request);
}
