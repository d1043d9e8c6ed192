#!/bin/bash
set -euo pipefail
export OMPI_CC=$CC OMPI_CXX=$CXX
# Each file by itself, as it is tested: in a unity build a name of one file may hide another's without a word.
cmake -S libddl -B made -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$PREFIX" -DCMAKE_INSTALL_LIBDIR=lib \
  -DCMAKE_PREFIX_PATH="$PREFIX" -DMPI_C_COMPILER="$PREFIX/bin/mpicc" -DMPI_CXX_COMPILER="$PREFIX/bin/mpicxx" \
  -DDDL_VERSION="$PKG_VERSION"
cmake --build made -j "$CPU_COUNT"
cmake --install made
# the header's notice, for license_file
cp "$PREFIX/share/licenses/nlohmann_json/LICENSE.MIT" nlohmann_json-LICENSE.MIT
