"""Which processes train together, and which of them this one is: from the flags, or from TF_CONFIG."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tf_cnn_benchmarks.choices import SERVED, WITH_RANKS
from tf_cnn_benchmarks.errors import BenchmarkError

if TYPE_CHECKING:
    from tf_cnn_benchmarks.params import Params

PS, WORKER, CONTROLLER = "ps", "worker", "controller"
CHIEFS = ("chief", "master")
"""Task types of TF_CONFIG that are there once, and lead."""
LARGEST_PORT = 65535

SHAPES = {
    "parameter_server": "--ps_hosts and --worker_hosts",
    "distributed_replicated": "--ps_hosts and --worker_hosts",
    "collective_all_reduce": "--worker_hosts alone",
    "distributed_all_reduce": "--controller_host and --worker_hosts",
}
"""By --variable_update: the addresses that it needs."""
STARTS = {
    "parameter_server": "ddlrun -ps 1 -np 2",
    "distributed_replicated": "ddlrun -ps 1 -np 2",
    "collective_all_reduce": "ddlrun -tf-config worker -np 2",
    "distributed_all_reduce": "ddlrun -tf-config chief -np 3",
}
"""And how ddlrun starts such processes."""


@dataclass(frozen=True)
class Cluster:
    """All tasks as host:port, and the one that this process is."""

    workers: tuple[str, ...]
    ps: tuple[str, ...]
    controller: tuple[str, ...]
    job: str
    index: int

    @property
    def jobs(self) -> dict[str, list[str]]:
        """The addresses of each job, as TensorFlow's ClusterSpec takes them."""
        every = {PS: self.ps, WORKER: self.workers, CONTROLLER: self.controller}
        return {job: list(addresses) for job, addresses in every.items() if addresses}

    @property
    def task(self) -> str:
        """This task's name in messages."""
        return self.job if self.job == CONTROLLER else f"{self.job} {self.index}"

    @property
    def address(self) -> str:
        return self.jobs[self.job][self.index]

    @property
    def leads(self) -> bool:
        """Whether this process prints and writes files."""
        return self.job == CONTROLLER or (not self.controller and self.job == WORKER and self.index == 0)

    def named(self, job: str, index: int) -> str:
        """A task as messages name it, with its address."""
        task = "the controller" if job == CONTROLLER else f"{job} {index}"
        return f"{task} ({self.jobs[job][index]})"


def task_device(job: str, index: int) -> str:
    """A task as TensorFlow names it."""
    return f"/job:{job}/task:{index}"


def cluster_of_flags(params: Params) -> Cluster | None:
    """BenchmarkError where the flags do not fit each other; None where they name no cluster."""
    present = [n for n in ("job_name", "ps_hosts", "worker_hosts", "controller_host") if getattr(params, n)]
    if not present:
        if params.changed("task_index"):
            raise BenchmarkError("--task_index counts the tasks of --job_name; give --job_name and the hosts")
        return None
    if not params.job_name:
        raise BenchmarkError(f"--{present[0]} needs --job_name=worker, ps or controller: this process's job")
    cluster = Cluster(
        workers=_addresses("worker_hosts", params.worker_hosts),
        ps=_addresses("ps_hosts", params.ps_hosts),
        controller=_addresses("controller_host", params.controller_host or ""),
        job=params.job_name,
        index=params.task_index,
    )
    _check(params, cluster, "the flags")
    return cluster


def find_cluster(params: Params, environment: Mapping[str, str]) -> Cluster | None:
    """From the flags or, where they name none, from TF_CONFIG; None: this process trains alone."""
    cluster = cluster_of_flags(params)
    text = environment.get("TF_CONFIG", "").strip()
    if cluster is None and text and params.variable_update not in WITH_RANKS:
        cluster = _of_tf_config(text, params.variable_update)
        if cluster is not None:
            _check(params, cluster, "TF_CONFIG")
    if cluster is None and params.variable_update in ("distributed_replicated", "distributed_all_reduce"):
        kind = params.variable_update
        raise BenchmarkError(
            f"--variable_update={kind} needs processes: start it by `{STARTS[kind]} tf_cnn_benchmarks ...`, "
            f"or give each process --job_name, --task_index, {SHAPES[kind]}"
        )
    return cluster


def _check(params: Params, cluster: Cluster, source: str) -> None:
    kind = params.variable_update
    if kind not in SHAPES:
        raise BenchmarkError(
            f"--variable_update={kind} has no use for the cluster of {source}; with it, "
            f"{', '.join(sorted(SHAPES))} work. For {kind} leave it out"
        )
    allowed = {PS: kind in SERVED, WORKER: True, CONTROLLER: kind == "distributed_all_reduce"}
    flags = {PS: "ps_hosts", WORKER: "worker_hosts", CONTROLLER: "controller_host"}
    for job, needed in allowed.items():
        if needed != bool(cluster.jobs.get(job)):
            verb = "needs" if needed else "has no"
            raise BenchmarkError(
                f"--variable_update={kind} {verb} --{flags[job]}: it takes {SHAPES[kind]} "
                f"(by ddlrun: `{STARTS[kind]} ...`), and {source} {'lacks' if needed else 'has'} that"
            )
    if len(cluster.controller) > 1:
        raise BenchmarkError("--controller_host names one host:port, not several")
    tasks = cluster.jobs.get(cluster.job)
    if tasks is None:
        raise BenchmarkError(
            f"--job_name={cluster.job}: {source} name no such task; --variable_update={kind} takes "
            f"{SHAPES[kind]}"
        )
    if not cluster.index < len(tasks):
        raise BenchmarkError(
            f"--task_index={cluster.index}: the {cluster.job} tasks of {source} are 0 to {len(tasks) - 1}"
        )
    every = [address for addresses in cluster.jobs.values() for address in addresses]
    for address in every:
        if every.count(address) > 1:
            raise BenchmarkError(f"{source} give {address} to two tasks; each needs a port of its own")
    for name in ("eval", *(["forward_only"] if kind in SERVED else [])):
        if getattr(params, name):
            raise BenchmarkError(f"--{name} runs in one process: leave the cluster of {source} out")
    if not params.cross_replica_sync and kind not in SERVED:
        raise BenchmarkError(
            f"--cross_replica_sync=False: {kind} is an all-reduce, for which all workers meet in each step; "
            "use --variable_update=parameter_server"
        )


def _addresses(flag: str, text: str) -> tuple[str, ...]:
    """host:port,host:port as a tuple."""
    addresses = tuple(part.strip() for part in text.split(",")) if text else ()
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) <= LARGEST_PORT:
            raise BenchmarkError(f"--{flag}: '{address}' is not a host:port such as host1:2222")
    return addresses


def _of_tf_config(text: str, kind: str) -> Cluster | None:
    """A chief is the controller of distributed_all_reduce, and worker 0 otherwise. None where there is
    nobody else."""
    try:
        document = json.loads(text)
        cluster: dict[str, Any] = document.get("cluster", {})
        task = document.get("task", {})
        job, index = str(task.get("type", WORKER)), int(task.get("index", 0))
        chief = [str(address) for name in CHIEFS for address in cluster.get(name, [])]
        workers = [str(address) for address in cluster.get(WORKER, [])]
        ps = [str(address) for address in cluster.get(PS, [])]
    except (ValueError, TypeError, AttributeError) as error:
        raise BenchmarkError(
            f"TF_CONFIG is not as TensorFlow defines it ({error}); it holds "
            '{"cluster": {"worker": ["host:port"]}, "task": {"type": "worker", "index": 0}}'
        ) from None
    if kind == "distributed_all_reduce":
        controller, others = tuple(chief), tuple(workers)
        job = CONTROLLER if job in CHIEFS else job
    else:
        controller, others = (), (*chief, *workers)
        if job in CHIEFS:
            job = WORKER
        elif job == WORKER:
            index += len(chief)
    if len(others) + len(ps) + len(controller) <= 1:
        return None
    for address in (*controller, *others, *ps):
        _addresses("worker_hosts", address)
    if index < 0:
        raise BenchmarkError(f"TF_CONFIG: task index {index} is less than 0")
    return Cluster(tuple(others), tuple(ps), controller, job, index)
