# test.sh ddl | mpi
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1 TF_CPP_MIN_LOG_LEVEL=2
for framework in torch tensorflow; do
  test "$(timeout 300 mpirun --oversubscribe -n 2 python "$here/averages.py" "$1" $framework | grep -cx averaged)" = 2
done
test -s "$CONDA_PREFIX/horovod/doc/README.md"
for benchmark in pytorch tensorflow2; do
  timeout 300 mpirun --oversubscribe -n 2 python "$CONDA_PREFIX/horovod/examples/${benchmark}_synthetic_benchmark.py" --help > out
  grep -e --num-batches-per-iter out
done
