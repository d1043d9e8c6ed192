#!/bin/bash
set -euo pipefail
grep -E 'CVE-.*\.patch$' debian/patches/series | while read -r name; do
  patch -p1 --no-backup-if-mismatch <"debian/patches/$name"
done
cmake -S expat -B made -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$PREFIX" -DCMAKE_INSTALL_LIBDIR=lib \
  -DCMAKE_C_FLAGS_RELEASE=-DNDEBUG -DEXPAT_BUILD_DOCS=OFF -DEXPAT_BUILD_EXAMPLES=OFF -DEXPAT_BUILD_TESTS=OFF \
  -DCMAKE_INSTALL_RPATH="$PREFIX/lib"
cmake --build made -j "$CPU_COUNT"
cmake --install made
rm -rf "$PREFIX/share/doc/expat"
