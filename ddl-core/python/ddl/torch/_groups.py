"""Process groups of torch.distributed on DDL, and the place where their ranks meet."""

from __future__ import annotations

import functools
import os
import socket
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch.distributed as distributed

import ddl

_ADDRESS_BYTES = 256
#: The server that torch's store takes up again, as long as this process lives.
_store: Any = None


def _check_world(rank: int, size: int) -> None:
    if (rank, size) == (ddl.rank(), ddl.size()):
        return
    raise ddl.DDLError(
        f"[ERROR DDL-1-5] torch says rank {rank} of {size}, but DDL rank {ddl.rank()} of {ddl.size()}; in "
        'init_process_group("ddl"); start the program with ddlrun, mpirun or torchrun, and leave rank and '
        "world_size to it",
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


def agree_on_meeting_place() -> None:
    """Sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT where they are missing. Collective."""
    global _store
    ddl.init()
    place = np.zeros(_ADDRESS_BYTES + 1, np.int32)
    if ddl.rank() == 0:
        host = "127.0.0.1" if ddl.num_hosts() == 1 else socket.gethostname()
        # A server that runs already cannot lose its port to another process.
        _store = distributed.TCPStore(host, 0, is_master=True, wait_for_workers=False, multi_tenant=True)
        address = host.encode()[:_ADDRESS_BYTES]
        place[: len(address)] = list(address)
        place[-1] = _store.port
    ddl.bcast_(place, name="MASTER_ADDR, MASTER_PORT")
    address = bytes(int(letter) for letter in place[:-1] if letter)
    os.environ.setdefault("RANK", str(ddl.rank()))
    os.environ.setdefault("WORLD_SIZE", str(ddl.size()))
    os.environ["MASTER_ADDR"] = address.decode()
    os.environ["MASTER_PORT"] = str(place[-1])
