#!/bin/sh
# rank_environment.sh PROGRAM ARGUMENT...: the program, in the environment that torchrun would give it.
#
# ddlrun sets what is the same for all ranks (WORLD_SIZE, MASTER_ADDR, MASTER_PORT) and, in DDLRUN_HOST_RANKS, how many
# ranks each host has, in the order of the ranks: "2,2,1". The launcher tells each rank its number. From these follow
# RANK, LOCAL_RANK, LOCAL_WORLD_SIZE and GROUP_RANK (the host's number), under mpirun, srun, jsrun and flux alike.
# What is piped into ddlrun is rank 0's standard input.
# DDLRUN_GPU_ROWS and DDLRUN_GPU_ROW_OF_RANK: the rank's variables of its GPU (see gpu_environment.py).
# DDLRUN_TF_TASKS: the program is a task of a TensorFlow cluster, which tasks/supervisor.py starts.
# OMP_NUM_THREADS: where ranks are not bound to processors, a rank's share of those of the host.
rank=${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-${SLURM_PROCID:-${FLUX_TASK_RANK:-${JSM_NAMESPACE_RANK:-}}}}}
case $rank in
'' | *[!0-9]*) exec "$@" ;;
esac
RANK=$rank
export RANK
if [ -n "${DDLRUN_HOST_RANKS:-}" ]; then
  GROUP_RANK=0
  LOCAL_RANK=$rank
  rest=$DDLRUN_HOST_RANKS,
  while [ -n "$rest" ]; do
    LOCAL_WORLD_SIZE=${rest%%,*}
    [ "$LOCAL_RANK" -lt "$LOCAL_WORLD_SIZE" ] && break
    LOCAL_RANK=$((LOCAL_RANK - LOCAL_WORLD_SIZE))
    GROUP_RANK=$((GROUP_RANK + 1))
    rest=${rest#*,}
  done
  export LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK
else
  LOCAL_RANK=${OMPI_COMM_WORLD_LOCAL_RANK:-${SLURM_LOCALID:-${FLUX_TASK_LOCAL_ID:-}}}
  LOCAL_WORLD_SIZE=${OMPI_COMM_WORLD_LOCAL_SIZE:-}
  [ -z "$LOCAL_RANK" ] || export LOCAL_RANK
  [ -z "$LOCAL_WORLD_SIZE" ] || export LOCAL_WORLD_SIZE
fi
if [ -n "${LOCAL_WORLD_SIZE:-}" ]; then
  if [ -n "${DDLRUN_UNBOUND:-}" ] && [ -z "${OMP_NUM_THREADS:-}" ]; then
    cores=$(nproc 2>/dev/null) || cores=1
    OMP_NUM_THREADS=$((cores / LOCAL_WORLD_SIZE))
    [ "$OMP_NUM_THREADS" -ge 1 ] || OMP_NUM_THREADS=1
    export OMP_NUM_THREADS
  fi
fi
# nth NUMBER WORD...: that word, counted from 0, as _word; false where there are fewer.
nth() {
  [ "$#" -gt $(($1 + 1)) ] && shift $(($1 + 1)) && _word=$1
}
set -f
IFS=,
if nth "$rank" ${DDLRUN_GPU_ROW_OF_RANK:-} && IFS=';' && nth "$_word" ${DDLRUN_GPU_ROWS:-}; then
  IFS=' '
  for _word in $_word; do
    case $_word in
    UCX_NET_DEVICES=*) [ -z "${UCX_NET_DEVICES:-}" ] || continue ;; # the host's own choice stays
    esac
    export "$_word"
  done
fi
set +f
unset -f nth
unset IFS rest cores _word DDLRUN_HOST_RANKS DDLRUN_UNBOUND DDLRUN_GPU_ROW_OF_RANK DDLRUN_GPU_ROWS
# PATH begins with the environment's programs.
[ -z "${DDLRUN_TF_TASKS:-}" ] || set -- python3 -I "${0%/*}/task_supervisor.py" "$@"
if [ -n "${DDLRUN_STDIN:-}" ] && [ "$rank" = 0 ]; then
  # Any Python 3 would do.
  exec python3 -I -S "${0%/*}/stdin_of_rank_0.py" "$@"
fi
unset rank DDLRUN_STDIN
if [ -n "${DDLRUN_SIGNALS_IGNORED:-}" ]; then
  unset DDLRUN_SIGNALS_IGNORED
  exec python3 -I -S "${0%/*}/default_signals.py" "$@"
fi
exec "$@"
