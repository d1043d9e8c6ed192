#!/bin/bash
set -euo pipefail
cmake -S python/bindings/python -B made -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$PREFIX" \
  -DCMAKE_UNITY_BUILD=ON -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_PREFIX_PATH="$PREFIX" -DPython_EXECUTABLE="$PREFIX/bin/python" \
  -DDDL_PYTHON_SITE="$SP_DIR" -DDDL_BUILD_BOOTSTRAP=ON
cmake --build made -j "$CPU_COUNT"
cmake --install made
# the header's notice, for license_file
cp "$PREFIX/share/licenses/nlohmann_json/LICENSE.MIT" nlohmann_json-LICENSE.MIT
# names relative to site-packages: no folder of this build is in them
"$PREFIX/bin/python" -m compileall -q -f --invalidation-mode timestamp -s "$SP_DIR" "$SP_DIR/ddl" "$SP_DIR/ddl_drift" "$SP_DIR/pyddl.py"
# where the job files of WML CE's users look for samples
find examples -name __pycache__ -prune -exec rm -r {} +
mkdir -p "$PREFIX/ddl/doc"
cp -r examples "$PREFIX/ddl/"
mv "$PREFIX/ddl/examples/README.md" "$PREFIX/ddl/doc/"
