# Real ranks: a C++ client, numpy arrays, and the launcher.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1
$CXX -std=c++20 $CXXFLAGS "$here/client.cpp" $LDFLAGS -lddl -lddl_pack -o client
timeout 120 ./client | grep -x 'rank 0 of 1: 1'
timeout 120 mpirun --oversubscribe -n 3 ./client | sort | tail -n 1 | grep -x 'rank 2 of 3: 6'
program='import ddl, numpy as np; x = np.full(3, ddl.rank() + 1.0, "f"); print(ddl.allreduce(x))'
test "$(timeout 120 mpirun --oversubscribe -n 2 python -c "$program")" = $'[3. 3. 3.]\n[3. 3. 3.]'
timeout 120 python "$here/served_ranks.py"
test "$(timeout 120 ddlrun -np 2 python -c "$program" | grep -cx '\[3\. 3\. 3\.\]')" = 2
ddlrun --completion bash | cmp - "$CONDA_PREFIX/share/bash-completion/completions/ddlrun"
