# Real ranks of a C++ client.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1
$CXX -std=c++20 $CXXFLAGS "$here/client.cpp" $LDFLAGS -lddl -lddl_pack -o client
timeout 120 ./client | grep -x 'rank 0 of 1: 1'
timeout 120 mpirun --oversubscribe -n 3 ./client | sort | tail -n 1 | grep -x 'rank 2 of 3: 6'
