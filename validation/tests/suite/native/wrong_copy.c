// A host that holds another sum than the others: preloaded, it flips a bit in what DDL has summed.
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>

typedef int Allreduce(void* const*, const size_t*, size_t, int, int, const char*);

int ddl_allreduce_n(void* const* buffers, const size_t* counts, size_t n, int type, int op,
                    const char* name) {
  Allreduce* real = (Allreduce*)dlsym(RTLD_NEXT, "ddl_allreduce_n");
  if (real == NULL) {
    // Python has loaded it for itself, out of the reach of a library that was there before
    void* library = dlopen("libddl.so.2", RTLD_NOLOAD | RTLD_NOW);
    real = library == NULL ? NULL : (Allreduce*)dlsym(library, "ddl_allreduce_n");
  }
  if (real == NULL) abort();
  int status = real(buffers, counts, n, type, op, name);
  if (status == 0 && n > 0 && counts[0] > 60000) ((unsigned char*)buffers[0])[2] ^= 1;
  return status;
}
