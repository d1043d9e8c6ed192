#!/bin/bash
set -euo pipefail
cmake -S bindings/tensorflow -B made -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$PREFIX" \
  -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_PREFIX_PATH="$PREFIX" -DPython_EXECUTABLE="$PREFIX/bin/python" \
  -DDDL_PYTHON_SITE="$SP_DIR"
cmake --build made -j "$CPU_COUNT"
cmake --install made
