#!/bin/bash
set -euo pipefail
patch -p1 --no-backup-if-mismatch <debian/patches/0001-Readline-8.2-patch-1-fix-crash-when-readline-is-star.patch
./configure --prefix="$PREFIX" --disable-static --with-curses --disable-install-examples
# linked to its terminal library itself, so that a program that uses it need not know which one that is
make -j"$CPU_COUNT" SHLIB_LIBS="-ltinfow" SHLIB_RPATH="-Wl,-rpath,$PREFIX/lib" SHLIB_LIBVERSION=8.2
make install SHLIB_LIBS="-ltinfow"
rm -rf "$PREFIX"/share/{info,doc/readline}
