"""What the variables that torchrun sets say about this process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ddlrun.rank_variables import MPI_RANK

from ddl._errors import DDLError

_NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Ranks:
    """This rank, their number, and which start of the job this is."""

    rank: int
    size: int
    restart: str


def find(environment: Mapping[str, str]) -> Ranks | None:
    """This rank as torch's variables have it; none without others, or where MPI's launcher has started them.

    torchrun may itself be a rank: `mpirun -N 1 torchrun …`, `srun torchrun …`. It is the inner one then,
    whatever variables of the outer one are left.

    Raises:
        DDLError: The variables contradict each other.
    """
    if any(not environment.get(name) for name in _NEEDED):
        return None
    if "TORCHELASTIC_RUN_ID" not in environment and any(name in environment for name in MPI_RANK):
        return None
    rank, size = environment["RANK"], environment["WORLD_SIZE"]
    if not (rank.isdecimal() and size.isdecimal() and int(rank) < int(size)):
        raise DDLError(
            f"[ERROR DDL-1-5] RANK={rank!r} and WORLD_SIZE={size!r} are no rank and number of ranks; in the "
            "environment; start the program with torchrun, ddlrun or mpirun, or unset both",
            5,
        )
    if int(size) == 1:
        return None
    return Ranks(int(rank), int(size), environment.get("TORCHELASTIC_RESTART_COUNT", "0"))
