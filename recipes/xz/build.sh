#!/bin/bash
# Debian's fixes of the library and the program (CVE-2025-31115 among them), without its translations.
set -euo pipefail
grep -E '^(liblzma|xz)-.*\.patch$' debian/patches/series | while read -r name; do
  patch -p1 --no-backup-if-mismatch <"debian/patches/$name"
done
./configure --prefix="$PREFIX" --disable-static --disable-nls --disable-doc --disable-scripts \
  --disable-lzmadec --disable-lzmainfo --disable-dependency-tracking
make -j"$CPU_COUNT"
make install
rm -f "$PREFIX"/lib/*.la
