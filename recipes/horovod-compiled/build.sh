#!/bin/bash
set -euo pipefail
export OMPI_CC=$CC OMPI_CXX=$CXX
export HOROVOD_WITH_MPI=1 HOROVOD_WITH_PYTORCH=1 HOROVOD_WITH_TENSORFLOW=1
export HOROVOD_WITHOUT_GLOO=1 HOROVOD_WITHOUT_MXNET=1 HOROVOD_WITHOUT_NVTX=1
# not the instructions of the machine that builds
export HOROVOD_BUILD_ARCH_FLAGS=' '
# the place is another in the packages that are made of this one
LDFLAGS=${LDFLAGS//-Wl,-rpath,$PREFIX\/lib/}
# DDL's interface is its headers: with its library, every change of DDL would compile Horovod again
export CXXFLAGS="$CXXFLAGS -I$PWD/ddl-include"
mkdir ddl-library
sed -n 's/.*\b\(ddl_[a-z_]*\)(.*/void \1(void) {}/p' horovod/common/ops/ddl_{calls,{c,g}pu_operations}.cc | sort -u |
  "$CC" -shared -fPIC -xc - -Wl,-soname,libddl.so.2 -o ddl-library/libddl.so
installed=$PREFIX/share/horovod-compiled

# the Python side; it would ask for cffi, which only other versions of PyTorch needed
HOROVOD_SKIP_COMPILE=1 HOROVOD_WITHOUT_PYTORCH=1 "$PREFIX/bin/python" -m pip install --no-deps --no-index \
  --no-build-isolation --no-compile --root-user-action=ignore --target python .
rm -r python/bin python/horovod-*.dist-info/direct_url.json
# for frameworks that are not in the channel
rm -r python/horovod/{mxnet,ray,spark}
sed -i -E '/^horovod\/(mxnet|ray|spark)\/|direct_url.json|horovodrun/d' python/horovod-*.dist-info/RECORD

for variant in ddl mpi; do
  # what is there decides what is built: see patches/ddl.patch
  [ $variant = ddl ] || rm horovod/common/ops/ddl_{calls,{c,g}pu_operations}.*
  # many headers for little code: together the files take a third of the time that they take one by one. A CUDA of
  # the machine that builds is not looked for.
  cmake -S . -B made -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE='-O2 -DNDEBUG' \
    -DCMAKE_UNITY_BUILD=ON -DCMAKE_LIBRARY_OUTPUT_DIRECTORY_RELEASE="$PWD/libraries" \
    -DPYTHON_EXECUTABLE="$PREFIX/bin/python" -DCMAKE_PREFIX_PATH="$PREFIX" -DCMAKE_LIBRARY_PATH="$PWD/ddl-library" \
    -DMPI_CXX_COMPILER="$PREFIX/bin/mpicxx" -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON \
    -DCMAKE_INSTALL_RPATH='$ORIGIN/../../../..;$ORIGIN/../../torch/lib;$ORIGIN/../../tensorflow' \
    -DCMAKE_CUDA_COMPILER=NOTFOUND -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON
  cmake --build made -j "$CPU_COUNT"
  mkdir -p "$installed/$variant"
  cp -r python/. libraries/horovod "$installed/$variant/"
done
cp LICENSE "$installed/"
