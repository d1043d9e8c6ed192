#!/bin/bash
set -euo pipefail
export OMPI_CC=$CC OMPI_CXX=$CXX
cmake -S bindings/tensorflow -B made -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$PREFIX" \
  -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_PREFIX_PATH="$PREFIX" -DMPI_C_COMPILER="$PREFIX/bin/mpicc" \
  -DMPI_CXX_COMPILER="$PREFIX/bin/mpicxx" -DPython_EXECUTABLE="$PREFIX/bin/python" -DDDL_PYTHON_SITE="$SP_DIR"
cmake --build made -j "$CPU_COUNT"
cmake --install made
