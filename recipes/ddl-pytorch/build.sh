#!/bin/bash
set -euo pipefail
# many headers for little code: in two files instead of ten, which take a third of the time
cmake -S python/bindings/torch -B made -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$PREFIX" \
  -DCMAKE_UNITY_BUILD=ON -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_PREFIX_PATH="$PREFIX" -DPython_EXECUTABLE="$PREFIX/bin/python" \
  -DDDL_PYTHON_SITE="$SP_DIR" -DDDL_VERSION="$PKG_VERSION"
cmake --build made -j "$CPU_COUNT"
cmake --install made
# names relative to site-packages: no folder of this build is in them
"$PREFIX/bin/python" -m compileall -q -f --invalidation-mode timestamp -s "$SP_DIR" \
  "$SP_DIR/ddl/torch" "$SP_DIR/ddl_torch_autoload.py"
# where the job files of WML CE's users look for samples
find examples -name __pycache__ -prune -exec rm -r {} +
mkdir -p "$PREFIX/ddl-pytorch/doc" "$PREFIX/pytorch"
cp -r examples "$PREFIX/ddl-pytorch/"
mv "$PREFIX/ddl-pytorch/examples/README.md" "$PREFIX/ddl-pytorch/doc/"
ln -s ../ddl-pytorch/examples "$PREFIX/pytorch/examples"
