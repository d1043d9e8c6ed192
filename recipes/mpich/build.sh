#!/bin/bash
set -euo pipefail
python3 -m zipfile -e ./*.whl .
cp -r mpich-*.dist-info/licenses licenses
cd mpich-*.data/data
cp -a bin include lib "$PREFIX/"
cd "$PREFIX"
chmod 755 bin/* lib/*.so.* lib/mpich/*.so.* lib/mpich/libfabric/*.so lib/mpich/ucx/*.so.*
