#!/bin/bash
# build.sh ddl | mpi
set -euo pipefail
case $1 in
  ddl) ;;
  # what is there decides what is built: see patches/ddl-cpu.patch
  mpi) rm horovod/common/ops/ddl_cpu_operations.* ;;
  *) exit 2 ;;
esac
export OMPI_CC=$CC OMPI_CXX=$CXX
export HOROVOD_WITH_MPI=1 HOROVOD_WITH_PYTORCH=1 HOROVOD_WITH_TENSORFLOW=1
export HOROVOD_WITHOUT_GLOO=1 HOROVOD_WITHOUT_MXNET=1 HOROVOD_WITHOUT_NVTX=1
# not the instructions of the machine that builds
export HOROVOD_BUILD_ARCH_FLAGS=' '
libraries=$PWD/libraries
# many headers for little code: together the files take a third of the time that they take one by one. A CUDA of
# the machine that builds is not looked for.
cmake -S . -B made -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE='-O2 -DNDEBUG' \
  -DCMAKE_UNITY_BUILD=ON -DCMAKE_LIBRARY_OUTPUT_DIRECTORY_RELEASE="$libraries" -DPYTHON_EXECUTABLE="$PREFIX/bin/python" \
  -DCMAKE_PREFIX_PATH="$PREFIX" -DMPI_CXX_COMPILER="$PREFIX/bin/mpicxx" -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON \
  -DCMAKE_INSTALL_RPATH="$PREFIX/lib" -DCMAKE_CUDA_COMPILER=NOTFOUND -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON
cmake --build made -j "$CPU_COUNT"

# the Python side; it would ask for cffi, which only other versions of PyTorch needed
HOROVOD_SKIP_COMPILE=1 HOROVOD_WITHOUT_PYTORCH=1 "$PREFIX/bin/python" -m pip install --no-deps --no-index \
  --no-build-isolation --no-compile --root-user-action=ignore .
rm "$SP_DIR"/horovod-*.dist-info/direct_url.json
sed -i '/direct_url.json/d' "$SP_DIR"/horovod-*.dist-info/RECORD
# for frameworks that are not in the channel
rm -r "$SP_DIR"/horovod/{mxnet,ray,spark}
sed -i -E '/^horovod\/(mxnet|ray|spark)\//d' "$SP_DIR"/horovod-*.dist-info/RECORD
cp -r "$libraries/horovod" "$SP_DIR/"
