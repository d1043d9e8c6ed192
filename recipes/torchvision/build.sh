#!/bin/bash
set -euo pipefail
# the wheel's Python; what is compiled in it is for CUDA
"$PREFIX/bin/python" -m pip install --no-deps --no-index --no-compile --root-user-action=ignore ./torchvision-*.whl
metadata=$(echo "$SP_DIR"/torchvision-*.dist-info)
"$PREFIX/bin/python" leave_out.py "$metadata" 'torchvision/*.so' 'torchvision.libs/*'
sed -i -E "/^__version__/s/\+cu[0-9]+//" "$SP_DIR/torchvision/version.py"

# Its Python registers gradients and types of mixed precision itself, which the C++ of 0.21 does, too: that is left out.
# Most of the time goes into PyTorch's headers: what has no names in common is compiled together.
csrc=$PWD/source/torchvision/csrc
mkdir made
cd made
printf '#include "%s"\n' ../operators.cpp "$csrc"/{vision.cpp,ops/*.cpp,ops/quantized/cpu/*.cpp} \
  "$csrc"/ops/cpu/{deform_conv2d,nms}_kernel.cpp >together.cpp
printf '%s\n' together.cpp "$csrc"/ops/cpu/*roi*_kernel.cpp |
  xargs -n 1 -P "$CPU_COUNT" "$CXX" $CPPFLAGS $CXXFLAGS -std=c++20 -I"$csrc" -isystem "$SP_DIR/torch/include" \
    -isystem "$SP_DIR/torch/include/torch/csrc/api/include" -c
"$CXX" -shared -o "$SP_DIR/torchvision/_C.so" ./*.o ${LDFLAGS//-Wl,-rpath,$PREFIX\/lib/} -L"$SP_DIR/torch/lib" \
  -lc10 -ltorch_cpu -Wl,--no-undefined -Wl,-rpath,'$ORIGIN/../torch/lib:$ORIGIN/../../..'
cd ..

sed -i -E 's/^(torchvision\/version\.py),.*/\1,,\ntorchvision\/_C.so,,/' "$metadata/RECORD"
"$PREFIX/bin/python" finish_wheel.py "$metadata" '{}' --platform
cp source/LICENSE .
