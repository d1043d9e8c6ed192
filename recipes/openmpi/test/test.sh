# Starts real ranks in every way that the package offers, with as little environment as possible: nothing may depend on
# an activated environment.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=$CONDA_PREFIX/bin
bare() {
  env -i HOME="$HOME" PATH=/usr/bin:/bin OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1 "$@"
}

bare "$bin/mpicc" -O2 "$here/sum.c" -o sum
expected=$(printf '0 2 1 %s\n1 2 1 %s' "$CONDA_PREFIX" "$CONDA_PREFIX")
echo "-- mpirun"
test "$(bare timeout 120 "$bin/mpirun" --oversubscribe -n 2 ./sum | sort)" = "$expected"
echo "-- mpiexec, prterun"
test "$(bare timeout 120 "$bin/mpiexec" --oversubscribe -n 2 ./sum | sort)" = "$expected"
test "$(bare timeout 120 "$bin/prterun" --map-by :oversubscribe -n 2 ./sum | sort)" = "$expected"
echo "-- without a launcher"
test "$(bare timeout 120 ./sum)" = "0 1 0 $CONDA_PREFIX"
echo "-- with a prefix that leaked in from elsewhere"
test "$(bare OPAL_PREFIX=/nowhere PMIX_PREFIX=/nowhere PRTE_PREFIX=/nowhere timeout 120 ./sum)" = "0 1 0 $CONDA_PREFIX"
echo "-- a second host, by a stand-in for ssh that starts a clean shell here"
if ls /sys/class/net | grep -qvx lo; then
  cat >agent <<'AGENT'
#!/bin/bash
shift
exec env -i HOME="$HOME" PATH=/usr/bin:/bin /bin/bash -c "$*"
AGENT
  chmod +x agent
  test "$(bare timeout 120 "$bin/mpirun" --host other.invalid:1,localhost:1 --prtemca plm_ssh_agent "$PWD/agent" \
    -n 2 sh -c 'echo $PMIX_RANK $OPAL_PREFIX' | sort)" = "$(printf '0 %s\n1 %s' "$CONDA_PREFIX" "$CONDA_PREFIX")"
else
  echo "skipped: this machine has no network interface but lo"
fi
echo "-- ompi_info"
bare "$bin/ompi_info" --path prefix | grep -F "$CONDA_PREFIX"
bare "$bin/ompi_info" --parsable | grep -F 'mca:coll:tuned'
echo "-- messages are found"
(bare "$bin/mpirun" -n 1 --bind-to nonsense true 2>&1 || true) | grep -F 'not recognized'
echo "-- SIGHUP ends a process that has loaded UCX"
cat >hangup.c <<'HANGUP'
#include <dlfcn.h>
#include <signal.h>
int main(int argc, char** argv) { return argc != 2 || !dlopen(argv[1], RTLD_NOW) || raise(SIGHUP); }
HANGUP
"$CC" hangup.c -o hangup -ldl
code=0
bare ./hangup "$CONDA_PREFIX/lib/openmpi/libucs.so.0" || code=$?
test $code = 129
