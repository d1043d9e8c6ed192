#!/bin/bash
# Debian's archive holds SQLite's repository, from which `make` generates the one big source file (with tclsh).
set -euo pipefail
# 32: the shell uses the library instead of compiling everything a second time; the others are fixes
grep -E '^(000|32-|41-|42-).*\.patch$' debian/patches/series | while read -r name; do
  patch -p1 --no-backup-if-mismatch <"debian/patches/$name"
done
export CFLAGS="$CFLAGS -DSQLITE_ENABLE_COLUMN_METADATA=1 -DSQLITE_ENABLE_UNLOCK_NOTIFY -DSQLITE_ENABLE_DBSTAT_VTAB=1 \
  -DSQLITE_SECURE_DELETE -DSQLITE_MAX_VARIABLE_NUMBER=250000 -DSQLITE_ENABLE_FTS3_TOKENIZER=1"
./configure --prefix="$PREFIX" --disable-static --disable-tcl --disable-readline --enable-threadsafe \
  --enable-fts4 --enable-fts5 --enable-rtree
make -j"$CPU_COUNT" sqlite3.c
make libsqlite3.la sqlite3
make install
rm -f "$PREFIX"/lib/*.la
