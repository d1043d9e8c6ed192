"""Which tasks of a TensorFlow cluster a job has, and on which hosts; and how the supervisors learn it."""

import importlib.util
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from ..command_line.options import Options
from ..errors import Code, LaunchError
from ..placement.slots import Placement

#: Where a supervisor finds what it is asked to do; rank_start.py starts it where this is set.
VARIABLE = "DDLRUN_TF_TASKS"
#: What users have to know before they start servers of TensorFlow.
EXPOSED = (
    "TensorFlow's servers ask for no password: whoever reaches their ports, on this host or by the network, "
    "reads and writes files as you; see `Who can reach the servers` in docs/train/strategies.md"
)
WORKER, CHIEF, SERVER = "worker", "chief", "ps"
# As ddlrun's own, without -grace.
_GRACE_SECONDS = 1.0


@dataclass(frozen=True)
class Task:
    """One task of the cluster. rank: whose program it is; None for a parameter server."""

    type: str
    index: int
    host: str
    rank: int | None = None

    def __str__(self) -> str:
        return f"{self.type} {self.index}"


@dataclass(frozen=True)
class ClusterRequest:
    """What the supervisors are asked to do.

    chief: rank 0 is the chief. servers: number of parameter servers. hosts: as the placement names them, in
    the order of the ranks. restarts: how often a failed task is started again; 0 also where the whole job is.
    grace: seconds from SIGTERM to SIGKILL. tagged: lines of parameter servers begin with their names.
    interface: of the network between hosts.
    """

    chief: bool
    servers: int
    hosts: tuple[str, ...]
    restarts: int
    grace: float
    tagged: bool
    interface: str | None


def is_asked(options: Options) -> bool:
    """Whether the job is a cluster of TensorFlow's."""
    return options.tf_config is not None or options.ps is not None


def task_of_rank(chief: bool, rank: int) -> tuple[str, int]:
    """Type and index of a rank's task."""
    if not chief:
        return WORKER, rank
    return (CHIEF, 0) if rank == 0 else (WORKER, rank - 1)


def host_of_server(index: int, hosts: Sequence[str]) -> str:
    """Where a parameter server runs: they are spread round robin."""
    return hosts[index % len(hosts)]


def tasks(options: Options, placed: Placement) -> tuple[Task, ...]:
    """The tasks of a job, those of the ranks first; none where no cluster is asked for."""
    if not is_asked(options):
        return ()
    chief = options.tf_config == CHIEF
    ranks = [Task(*task_of_rank(chief, slot.rank), slot.host, slot.rank) for slot in placed.slots]
    hosts = list(placed.counts)
    servers = range(options.ps or 0) if hosts else ()
    return (*ranks, *(Task(SERVER, index, host_of_server(index, hosts)) for index in servers))


def as_data(planned: Sequence[Task]) -> dict[str, object]:
    """The part of the job's plan; nothing without tasks."""
    if not planned:
        return {}
    return {
        "tasks": [
            {name: value for name, value in asdict(task).items() if value is not None} for task in planned
        ]
    }


def in_words(planned: Sequence[Mapping[str, object]]) -> str:
    """Tasks of a plan for people: `chief 0 on h1, worker 0 on h2, …`."""
    return ", ".join(f"{task['type']} {task['index']} on {task['host']}" for task in planned)


def variables(options: Options, placed: Placement) -> dict[str, str]:
    """What ddlrun tells the supervisors. Raises LaunchError where they could not run."""
    if not is_asked(options):
        return {}
    if importlib.util.find_spec("mpi4py") is None:
        raise LaunchError(
            Code.CLUSTER,
            "the tasks of a TensorFlow cluster find each other by mpi4py, which is missing",
            f"in the environment {sys.prefix}",
            "install the package mpi4py there; powerai has it",
        )
    request = ClusterRequest(
        chief=options.tf_config == CHIEF,
        servers=options.ps or 0,
        hosts=tuple(placed.counts),
        # Without parameter servers all workers depend on each other, and the whole job starts again.
        restarts=(options.max_restarts or 0) if options.ps else 0,
        grace=options.grace or _GRACE_SECONDS,
        tagged=options.tag_output,
        interface=options.interface,
    )
    return {VARIABLE: json.dumps(asdict(request), separators=(",", ":"))}


def read(text: str) -> ClusterRequest:
    """What `variables` wrote."""
    values = json.loads(text)
    return ClusterRequest(**{**values, "hosts": tuple(values["hosts"])})
