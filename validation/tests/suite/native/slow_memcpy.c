// A host with little memory bandwidth: preloaded, it makes the C library's memcpy of large blocks move their
// bytes ten times.
#include <stddef.h>

// glibc's own, which nobody preloads
void* __memmove_chk(void* to, const void* from, size_t size, size_t room);

enum { LARGE = 4 << 20, TIMES = 10 };

void* memcpy(void* to, const void* from, size_t size) {
  if (size >= LARGE) {
    for (int i = 1; i < TIMES; i++) __memmove_chk(to, from, size, size);
  }
  return __memmove_chk(to, from, size, size);
}
