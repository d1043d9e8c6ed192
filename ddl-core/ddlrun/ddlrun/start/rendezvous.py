"""What torchrun tells its ranks, for programs that are started by ddlrun: the variables that all ranks share.

Those of each rank are set on its host by rank_start.py, from the number that its launcher gives it.
"""

import itertools
import socket
import zlib
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing

from ..checks.inventory import HostInventory
from ..environment import Environment
from ..placement.slots import Placement, Slot
from ..tasks import plan
from . import gpu_environment, rank_start

_NAMES = (
    "WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "DDLRUN_MASTER",
    "DDLRUN_HOST_RANKS",
    "DDLRUN_UNBOUND",
    plan.VARIABLE,
)
#: Of a launcher around ddlrun, or of the last start: they would be taken for those of this one.
OF_A_RANK = (*_NAMES, *gpu_environment.OF_A_RANK)
# Below those that the kernel gives to connections, and above those of services.
_PORTS = range(20000, 32000)
_LOCAL = ("localhost", "127.0.0.1")


def host_ranks(slots: Sequence[Slot]) -> str | None:
    """How many ranks each host has, in the order of the ranks; None where a host's ranks do not follow each
    other."""
    runs = [(host, len(list(ranks))) for host, ranks in itertools.groupby(slots, key=lambda slot: slot.host)]
    if len({host for host, _ in runs}) < len(runs):
        return None
    return ",".join(str(count) for _, count in runs)


def port_of(job: str, busy: Collection[int] = ()) -> int:
    """A port for a job's rank 0, another one for each job; none of those that are known to be taken."""
    start = zlib.crc32(job.encode())
    ports = (_PORTS[(start + i) % len(_PORTS)] for i in range(len(_PORTS)))
    return next(port for port in ports if port not in busy and _is_free(port))


def _is_free(port: int) -> bool:
    """On this host, which is often that of rank 0; elsewhere it says nothing, and does no harm."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as tried:
        try:
            tried.bind(("", port))
        except OSError:
            return False
    return True


def variables(
    placed: Placement,
    facts: Mapping[str, HostInventory],
    job: str,
    *,
    unbound: bool,
    placement_known: bool = True,
) -> dict[str, str]:
    """The variables of a job. placement_known: the ranks
    will be where the placement has them."""
    if not placed.slots:
        return {}
    first = placed.slots[0].host
    address = first
    if len(placed.counts) == 1:
        address = "127.0.0.1"
    elif first in _LOCAL:
        address = facts[first].name if first in facts else socket.gethostname()
    values = {"WORLD_SIZE": str(len(placed.slots)), "MASTER_ADDR": address, "MASTER_PORT": str(port_of(job))}
    # DDL's own backend may choose another place, on one address alone, where nobody else has said anything.
    values["DDLRUN_MASTER"] = f"{values['MASTER_ADDR']}:{values['MASTER_PORT']}"
    if placement_known and (ranks := host_ranks(placed.slots)) is not None:
        values["DDLRUN_HOST_RANKS"] = ranks
    if unbound:
        values["DDLRUN_UNBOUND"] = "1"
    return values


def wrapped(program: Sequence[str], environment: Environment) -> list[str]:
    """The program, begun by what sets a rank's environment."""
    if not program:
        return []
    script = str(environment.ddlrun / "start/rank_start.py")
    return [str(environment.python), "-I", "-S", script, *rank_start.escaped(program)]
