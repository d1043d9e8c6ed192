# Compiles a program and starts real ranks in the ways that the package offers, without an activated environment.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=$CONDA_PREFIX/bin
bare() { env -i HOME="$HOME" PATH=/usr/bin:/bin "$@"; }

bare "$bin/mpicc" -O2 "$here/sum.c" -o sum
expected=$(printf '0 2 1\n1 2 1')
echo "-- mpirun, mpiexec, Hydra, gforker"
for launcher in mpirun mpiexec mpiexec.hydra mpiexec.gforker; do
  test "$(bare timeout 120 "$bin/$launcher" -n 2 ./sum | sort)" = "$expected"
done
echo "-- without a launcher"
test "$(bare timeout 120 ./sum)" = "0 1 0"
echo "-- over TCP instead of shared memory, by both of its network layers"
for netmod in ucx ofi; do
  test "$(bare timeout 120 "$bin/mpiexec" -genv MPIR_CVAR_CH4_NETMOD $netmod -genv MPIR_CVAR_NOLOCAL 1 -n 2 ./sum | sort)" \
    = "$expected"
done
echo "-- a second host, by a stand-in for ssh that starts a clean shell here"
cat >agent <<'AGENT'
#!/bin/bash
touch "$(dirname "$0")/asked"
while [[ $1 == -* ]]; do shift; done
shift
exec env -i HOME="$HOME" PATH=/usr/bin:/bin /bin/bash -c "$*"
AGENT
chmod +x agent
test "$(bare timeout 120 "$bin/mpiexec" -launcher ssh -launcher-exec "$PWD/agent" -localhost 127.0.0.1 \
  -hosts other.invalid -n 2 ./sum | sort)" = "$expected"
test -e asked
echo "-- mpichversion"
bare "$bin/mpichversion" | grep -F 'MPICH Version:      5.0.2'
