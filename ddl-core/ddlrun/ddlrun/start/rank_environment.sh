#!/bin/sh
# rank_environment.sh PROGRAM ARGUMENT...: the program, in the environment that torchrun would give it.
#
# ddlrun sets what is the same for all ranks (WORLD_SIZE, MASTER_ADDR, MASTER_PORT) and, in DDLRUN_HOST_RANKS, how many
# ranks each host has, in the order of the ranks: "2,2,1". The launcher tells each rank its number. From these follow
# RANK, LOCAL_RANK, LOCAL_WORLD_SIZE and GROUP_RANK (the host's number), under mpirun, srun, jsrun and flux alike.
# What is piped into ddlrun is rank 0's standard input.
# DDL_LOCAL_GPU and DDL_RANK_GPU, and where it must be CUDA_VISIBLE_DEVICES and UCX_NET_DEVICES: what gpu_environment.py
# tells of the rank's GPU.
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
# part_of TEXT SEPARATOR NUMBER: that part of the text, counted from 0, as _part; of a text without the separator all.
part_of() {
  _part=$1$2
  case $1 in
  *"$2"*)
    _left=$3
    while [ "$_left" -gt 0 ]; do
      _part=${_part#*"$2"}
      _left=$((_left - 1))
    done
    ;;
  esac
  _part=${_part%%"$2"*}
}
case ${GROUP_RANK:+known}${DDLRUN_VISIBLE:-} in
known*) _host=$GROUP_RANK ;;
*';'*) unset DDLRUN_VISIBLE DDLRUN_GPUS ;; # hosts differ, and which this is, is not known
*) _host=0 ;;
esac
if [ -n "${DDLRUN_VISIBLE+set}" ]; then
  part_of "$DDLRUN_VISIBLE" ';' "$_host"
  [ "$_part" = = ] || export CUDA_VISIBLE_DEVICES="$_part"
fi
if [ -n "${DDLRUN_GPUS:-}" ] && [ -n "${GROUP_RANK:-}" ]; then
  part_of "$DDLRUN_GPUS" ';' "$GROUP_RANK"
  part_of "$_part," , "$LOCAL_RANK"
  _gpu=$_part
  if [ -n "$_gpu" ]; then
    part_of "$_gpu" / 0
    export DDL_LOCAL_GPU="$_part"
    part_of "$_gpu" / 1
    DDL_RANK_GPU=$_part
    part_of "$_gpu" / 2
    export DDL_RANK_GPU="$DDL_RANK_GPU${_part:+/$_part}"
    part_of "$_gpu" / 3
    if [ -n "$_part" ] && [ -z "${UCX_NET_DEVICES:-}" ]; then
      UCX_NET_DEVICES=$(printf %s "$_part" | tr + ,)
      export UCX_NET_DEVICES
    fi
    # The name of an old MIG device has slashes itself.
    _part=${_gpu#*/*/*/*/}
    [ -z "$_part" ] || export CUDA_VISIBLE_DEVICES="$_part"
  fi
fi
unset -f part_of
unset rest cores _part _left _gpu _host DDLRUN_HOST_RANKS DDLRUN_UNBOUND DDLRUN_VISIBLE DDLRUN_GPUS
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
