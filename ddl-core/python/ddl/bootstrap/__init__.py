"""Gives MPI its start under torchrun, and under whatever else sets torch's variables and knows no MPI.

Open MPI learns of the other ranks from a PMIx server, which mpirun's daemon is otherwise. Here the lowest
rank of each host starts one (the program ddl-bootstrap). The ranks meet through torch's own store, at
MASTER_ADDR and MASTER_PORT; what the servers of several hosts exchange goes the same way.

    ranks.py       what the environment says
    rendezvous.py  the ranks agree on who is where
    server.py      the program, and what it exchanges with its like
"""

from __future__ import annotations

import atexit
import os
import re
import sys
from typing import Any

from ddlrun import networks, rank_variables

from ddl._errors import DDLError
from ddl.bootstrap.ranks import Ranks, find

_server: Any = None
_LAUNCH, _TIMEOUT = 5, 8
_DEFAULT_SECONDS = 300.0  # as of DDL's -timeout
# Here MPI starts in this process, as they say.
_PMIX_SETTINGS = ("PMIX_MCA_", "PMIX_PREFIX")


def _seconds(options: str | None) -> float:
    """The value of -timeout; libddl complains about a wrong one."""
    text = options if options is not None else os.environ.get("DDL_OPTIONS", "")
    values = re.findall(r"--?timeout(?:\s+|=)(\d+(?:\.\d*)?)", text)
    return float(values[-1]) if values else _DEFAULT_SECONDS


def prepare(options: str | None) -> None:
    """Puts what MPI_Init needs into the environment, where torchrun started this rank. Collective.

    Args:
        options: As for ddl.init.

    Raises:
        DDLError: The ranks did not meet within -timeout, or no server could be started.
    """
    global _server
    ranks = find(os.environ)
    if ranks is None or _server is not None:
        return
    if "mpi4py.MPI" in sys.modules and sys.modules["mpi4py.MPI"].Is_initialized():
        raise DDLError(
            "[ERROR DDL-1-5] MPI was initialised before DDL, as one rank without others, because torchrun "
            f"knows no MPI; in rank {ranks.rank} of {ranks.size}; import ddl before mpi4py.MPI",
            _LAUNCH,
        )
    # torch takes seconds to load, and none of this is needed under mpirun
    from ddl.bootstrap import rendezvous, server

    # An MPI launcher that started torchrun left its variables: they are torchrun's, not this rank's.
    for variable in [name for name in os.environ if rank_variables.of_mpi(name)]:
        if not variable.startswith(_PMIX_SETTINGS):
            del os.environ[variable]
    seconds = _seconds(options)
    place = rendezvous.Rendezvous(ranks, seconds)
    job = place.agree()
    os.environ.update(networks.excluding(job.left_out, os.environ))
    if job.leader:
        _server = server.Server(job, place.exchange(job))
        place.hand_out(job, _server.environments)
        atexit.register(_server.close)
    os.environ.update(place.receive(job))


__all__ = ["Ranks", "find", "prepare"]
