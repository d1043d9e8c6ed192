#!/bin/bash
set -euo pipefail
./configure --prefix="$PREFIX" --shared
make -j"$CPU_COUNT"
make install
rm -f "$PREFIX/lib/libz.a"
