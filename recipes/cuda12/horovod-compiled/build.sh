#!/bin/bash
set -euo pipefail
# what the channel's own build does, with operations of NCCL and CUDA besides
recipe=$PWD/channel-recipe
sed -n 's#^      - \(patches/.*[.]patch\)$#\1#p' "$recipe/recipe.yaml" | while read -r patch; do
  patch -p1 --fuzz=0 < "$recipe/$patch"
done
for patch in cuda-headers tf-stream; do
  patch -p1 --fuzz=0 < cuda/patches/$patch.patch
done
cp cuda/cuda_kernels.cc horovod/common/ops/cuda/
{ echo 'R"cuda('; cat cuda/kernels.cu; echo ')cuda"'; } > horovod/common/ops/cuda/kernels.inc

nvidia=$SP_DIR/nvidia
export HOROVOD_CUDA_INCLUDE
HOROVOD_CUDA_INCLUDE=$(printf '%s;' "$nvidia"/*/include)
HOROVOD_CUDA_INCLUDE=${HOROVOD_CUDA_INCLUDE%;}
# names without a version, for the linker
export HOROVOD_CUDA_LIBRARIES=$PWD/cuda-libraries
mkdir cuda-libraries
for library in cudart nccl nvrtc; do
  ln -s "$PREFIX"/lib/lib$library.so.* "$HOROVOD_CUDA_LIBRARIES/lib$library.so"
done
# where PyTorch looks for CUDA to say whether it has it
export CUDA_HOME=$PWD/cuda-home
mkdir -p cuda-home/include
ln -s ../cuda-libraries cuda-home/lib64
export HOROVOD_GPU_OPERATIONS=NCCL HOROVOD_NCCL_LINK=SHARED
export HOROVOD_NCCL_INCLUDE=$nvidia/nccl/include HOROVOD_NCCL_LIB=$HOROVOD_CUDA_LIBRARIES
bash "$recipe/build.sh"
