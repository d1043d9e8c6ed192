# Real ranks: numpy arrays, and the launcher.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1
program='import ddl, numpy as np; x = np.full(3, ddl.rank() + 1.0, "f"); print(ddl.allreduce(x))'
test "$(timeout 120 mpirun --oversubscribe -n 2 python -c "$program")" = $'[3. 3. 3.]\n[3. 3. 3.]'
timeout 120 python "$here/served_ranks.py"
test "$(timeout 120 ddlrun -np 2 python -c "$program" | grep -cx '\[3\. 3\. 3\.\]')" = 2
ddlrun --completion bash | cmp - "$CONDA_PREFIX/share/bash-completion/completions/ddlrun"
ddl-test
ddl-install-samples samples
timeout 120 ddlrun -np 2 python samples/regression.py | grep -E '^ranks 2  test accuracy (0\.[89]|1)'
