#!/bin/bash
set -euo pipefail
# without the multi-OS folder everything lies in lib/, not in lib/../lib64
./configure --prefix="$PREFIX" --disable-static --disable-docs --disable-multi-os-directory \
  --disable-dependency-tracking
make -j"$CPU_COUNT"
make install
rm -f "$PREFIX"/lib/*.la
