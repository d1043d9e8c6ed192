#!/bin/bash
set -euo pipefail
grep -E 'CVE-.*\.patch$' debian/patches/series | while read -r name; do
  patch -p1 --no-backup-if-mismatch <"debian/patches/$name"
done
# the fixes test the value of XML_DTD, which expat's own configure sets and its CMake file leaves empty
sed -i 's/^#cmakedefine XML_DTD$/#cmakedefine XML_DTD 1/' expat/expat_config.h.cmake
grep -q 'XML_DTD 1' expat/expat_config.h.cmake
# 3.5: the oldest policies that today's CMake knows; expat 2.5 asks for older ones
cmake -S expat -B made -G Ninja -DCMAKE_POLICY_VERSION_MINIMUM=3.5 -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_INSTALL_PREFIX="$PREFIX" -DCMAKE_INSTALL_LIBDIR=lib \
  -DCMAKE_C_FLAGS_RELEASE=-DNDEBUG -DEXPAT_BUILD_DOCS=OFF -DEXPAT_BUILD_EXAMPLES=OFF -DEXPAT_BUILD_TESTS=OFF \
  -DCMAKE_INSTALL_RPATH="$PREFIX/lib"
cmake --build made -j "$CPU_COUNT"
cmake --install made
rm -rf "$PREFIX/share/doc/expat"
