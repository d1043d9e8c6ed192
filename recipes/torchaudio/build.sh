#!/bin/bash
set -euo pipefail
# the wheel's Python; what is compiled in it is for CUDA
"$PREFIX/bin/python" -m pip install --no-deps --no-index --no-compile --root-user-action=ignore ./torchaudio-*.whl
metadata=$(echo "$SP_DIR"/torchaudio-*.dist-info)
"$PREFIX/bin/python" leave_out.py "$metadata" 'torchaudio/lib/*.so'
sed -i -E "/^__version__/s/\+cu[0-9]+//" "$SP_DIR/torchaudio/version.py"

# Its Python has no simulation of rooms, and takes care of the loss's gradient. Most of the time goes into PyTorch's
# headers: what has no names in common is compiled together.
libraries=$SP_DIR/torchaudio/lib
cd source/src/libtorchaudio
printf '#include "%s"\n' {utils,lfilter,overdrive,forced_align/cpu/compute,rnnt/compute}.cpp >together.cpp
# operators.cpp has this under its name
sed -i 's/m\.impl("forced_align"/m.impl("forced_align_2_6"/' forced_align/cpu/compute.cpp
cp ../../../operators.cpp .
printf '%s\n' together.cpp rnnt/cpu/compute.cpp operators.cpp | xargs -n 1 -P "$CPU_COUNT" "$CXX" $CPPFLAGS $CXXFLAGS \
  -std=c++20 -DINCLUDE_ALIGN -I.. -isystem "$SP_DIR/torch/include" \
  -isystem "$SP_DIR/torch/include/torch/csrc/api/include" -c
link() {
  "$CXX" -shared ${LDFLAGS//-Wl,-rpath,$PREFIX\/lib/} -L"$SP_DIR/torch/lib" -Wl,--no-undefined \
    -Wl,-rpath,'$ORIGIN:$ORIGIN/../../torch/lib:$ORIGIN/../../../..' "$@" -lc10 -ltorch_cpu
}
link -o "$libraries/libtorchaudio.so" -Wl,-soname,libtorchaudio.so together.o compute.o
link -o "$libraries/_torchaudio.so" operators.o "$libraries/libtorchaudio.so"
cd ../../..

sed -i -E 's/^(torchaudio\/version\.py),.*/\1,,\ntorchaudio\/lib\/libtorchaudio.so,,\ntorchaudio\/lib\/_torchaudio.so,,/' \
  "$metadata/RECORD"
"$PREFIX/bin/python" finish_wheel.py "$metadata" '{}' --platform
cp source/LICENSE .
