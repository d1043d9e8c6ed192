/* Compresses and expands a buffer; fails unless it comes back equal and was smaller in between. */
#include <stdio.h>
#include <string.h>
#include <zlib.h>

int main(void) {
  static unsigned char plain[100000], packed[100000], again[100000];
  uLongf packed_size = sizeof packed, again_size = sizeof again;
  for (size_t i = 0; i < sizeof plain; i++) plain[i] = (unsigned char)(i % 251);
  if (compress(packed, &packed_size, plain, sizeof plain) != Z_OK || packed_size > 10000) return 1;
  if (uncompress(again, &again_size, packed, packed_size) != Z_OK || again_size != sizeof plain) return 2;
  printf("zlib %s: %zu -> %lu bytes\n", zlibVersion(), sizeof plain, packed_size);
  return memcmp(plain, again, sizeof plain) == 0 && strcmp(zlibVersion(), ZLIB_VERSION) == 0 ? 0 : 3;
}
