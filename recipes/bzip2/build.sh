#!/bin/bash
# The shared library is built by a Makefile of its own; the second `make` builds the programs against it.
set -euo pipefail
make -f Makefile-libbz2_so CC="$CC" CFLAGS="$CFLAGS -D_FILE_OFFSET_BITS=64 $LDFLAGS"
ln -sf libbz2.so.1.0 libbz2.so
for program in bzip2 bzip2recover; do
  objects=$program.o
  "$CC" $CFLAGS -D_FILE_OFFSET_BITS=64 -c $program.c
  "$CC" $CFLAGS $objects -L. $LDFLAGS -lbz2 -o $program
done
install -Dm755 -t "$PREFIX/bin" bzip2 bzip2recover
ln -s bzip2 "$PREFIX/bin/bunzip2"
ln -s bzip2 "$PREFIX/bin/bzcat"
install -Dm644 -t "$PREFIX/include" bzlib.h
install -Dm755 -t "$PREFIX/lib" libbz2.so.1.0.8
ln -s libbz2.so.1.0.8 "$PREFIX/lib/libbz2.so.1.0"
ln -s libbz2.so.1.0.8 "$PREFIX/lib/libbz2.so"
