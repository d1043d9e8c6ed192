"""Process groups of torch.distributed on DDL."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch.distributed as distributed

import ddl
from ddl.torch import _drift


def _check_world(rank: int, size: int) -> None:
    if (rank, size) == (ddl.rank(), ddl.size()):
        return
    raise ddl.DDLError(
        f"[ERROR DDL-1-5] torch says rank {rank} of {size}, but DDL rank {ddl.rank()} of {ddl.size()}; in "
        'init_process_group("ddl"); start the program with ddlrun, mpirun or torchrun, and leave rank and '
        "world_size to it; processes that the program spawns itself need MASTER_ADDR and MASTER_PORT, or a "
        "tcp:// address, and must not import ddl before",
        5,
    )


def create(options: Any) -> Any:
    """Makes the backend of a process group. Collective over its ranks.

    Args:
        options: torch's DistributedBackendOptions.

    Raises:
        DDLError: torch and DDL disagree about the ranks, or DDL cannot start.
        DistBackendError: A rank did not come in time.
    """
    from ddl.torch._library import backend

    ddl.init()
    _drift.integrate()
    ranks: Sequence[int] = list(options.global_ranks_in_group)
    rank, size = options.group_rank, options.group_size
    if ranks:
        # ranks of the default group, which may be of another backend
        _check_world(ranks[rank], distributed.get_world_size())
    else:
        _check_world(rank, size)
    return backend.create(rank, size, ranks, options.timeout.total_seconds())


@functools.cache
def world() -> Any:
    """All ranks, for calls that need no process group. Collective at the first call."""
    from ddl.torch._library import backend

    ddl.init()
    return backend.create(ddl.rank(), ddl.size(), [], float(ddl.describe()["patience_s"]))
