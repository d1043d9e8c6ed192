set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1 TF_CPP_MIN_LOG_LEVEL=2
test "$(timeout 300 mpirun --oversubscribe -n 2 python "$here/operators.py" | grep -cx averaged)" = 2
DDL_TF1=1 python -I -c "import tensorflow as tf; assert tf.Session().run(tf.placeholder_with_default(3, [])) == 3"
for first in operators ddl; do
  test "$(timeout 300 ddlrun -np 2 python "$here/former_name.py" $first | grep -cx reduced)" = 2
done
ddl-tensorflow-test
ddl-tensorflow-install-samples samples
test -s samples/mnist/mnist-env.py -a -s "$CONDA_PREFIX/ddl-tensorflow/doc/README.md"
