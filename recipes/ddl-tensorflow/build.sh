#!/bin/bash
set -euo pipefail
# many headers for little code: in two files instead of ten, which take a sixth of the time
cmake -S python/bindings/tensorflow -B made -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$PREFIX" \
  -DCMAKE_UNITY_BUILD=ON -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_PREFIX_PATH="$PREFIX" -DPython_EXECUTABLE="$PREFIX/bin/python" \
  -DDDL_PYTHON_SITE="$SP_DIR"
cmake --build made -j "$CPU_COUNT"
cmake --install made
# names relative to site-packages: no folder of this build is in them
"$PREFIX/bin/python" -m compileall -q -f --invalidation-mode timestamp -s "$SP_DIR" \
  "$SP_DIR"/ddl/{tensorflow,keras} "$SP_DIR/ddl_tf1"
# where the job files of WML CE's users look for samples and for the operators
find examples -name __pycache__ -prune -exec rm -r {} +
installed=$PREFIX/ddl-tensorflow
mkdir -p "$installed/doc" "$installed/lib"
cp -r examples "$installed/"
mv "$installed/examples/README.md" "$installed/doc/"
ln -s "../../${SP_DIR#"$PREFIX/"}/ddl/tensorflow/libddl_tf.so" "$installed/lib/ddl_MDR.so"
