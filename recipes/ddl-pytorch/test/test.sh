set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1
test "$(timeout 300 mpirun --oversubscribe -n 2 python "$here/averages.py" | grep -cx averaged)" = 2
test "$(timeout 300 torchrun --nproc-per-node 2 "$here/averages.py" | grep -cx averaged)" = 2
pytorch-test
ddl-pytorch-test
pytorch-install-samples samples
test -s samples/mnist/mnist_ddp.py -a -s "$CONDA_PREFIX/ddl-pytorch/doc/README.md"
