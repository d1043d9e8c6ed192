"""By which variables launchers tell a process its rank, and an environment without them.

A rank's children inherit the variables. A program that starts with them takes itself for the rank: it waits
for the others, or mpirun and ddlrun refuse to start. Settings are no such variables: MCA parameters of Open
MPI and PRRTE, OMPI_ALLOW_RUN_AS_ROOT.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

#: Where launchers of MPI tell a process its rank. ddl_torch_autoload has them too: it imports nothing of ddl.
MPI_RANK = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
# A PMIx server tells its ranks its own place and parameters, too. libddl sets the last in every rank.
_MPI = re.compile(r"(OMPI|PRTE)_(?!MCA_|PREFIX$|ALLOW_)|PMIX_|PMI_|DDL_RANK_PROCESS$")
_SETTING = re.compile(r"(OMPI|PRTE|PMIX)_MCA_")
#: What mpi_settings() finds.
OF_OPEN_MPI = "settings of Open MPI from outside"
# torchrun's, and what ddlrun tells beside them.
_TORCH = re.compile(
    r"((LOCAL_|GROUP_|ROLE_|NODE_)?RANK|((LOCAL|GROUP|ROLE)_)?WORLD_SIZE|MASTER_(ADDR|PORT)"
    r"|DDL_(LOCAL|RANK)_GPU)$|TORCHELASTIC_"
)


def of_mpi(name: str) -> bool:
    """Whether a launcher of MPI tells a rank something by this variable."""
    return _MPI.match(name) is not None


def mpi_settings(environment: Mapping[str, str]) -> list[str]:
    """The user's settings of Open MPI: variables, and files in the home folder."""
    settings = [f"{name}={value}" for name, value in sorted(environment.items()) if _SETTING.match(name)]
    home = Path(environment.get("HOME") or "/")
    files = [home / f".{name}/mca-params.conf" for name in ("openmpi", "prte", "pmix")]
    return settings + [str(path) for path in files if path.is_file()]


def without(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a program that is no rank: no variable of MPI's launchers or of torchrun."""
    return {name: value for name, value in environment.items() if not of_mpi(name) and not _TORCH.match(name)}
