"""Where the ranks of MPI find torch's store: MASTER_ADDR and MASTER_PORT, when nobody has told them."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch.distributed as distributed
from ddlrun.addresses import TOKEN_BYTES, Beacon, create_server, own_addresses, reached

import ddl

_ADDRESS_BYTES = 64
_MOST_ADDRESSES = 16
#: The server that torch's store takes up again, as long as this process lives.
_store: Any = None


def agree_on_master() -> None:
    """Sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT where they are missing. Collective.

    The store listens on the one address that all hosts reach, on a single host on the loopback interface
    alone:
    torch's store knows no password, so nobody else should find it.

    Raises:
        DDLError: No address of rank 0's host is reached by every rank.
    """
    global _store
    ddl.init()
    address = "127.0.0.1" if ddl.num_hosts() == 1 else _address_that_all_reach()
    port = np.zeros(1, np.int64)
    if ddl.rank() == 0:
        listener = create_server(address, backlog=min(4096, 2 * ddl.size() + 16))
        port[0] = listener.getsockname()[1]
        # A server that runs already cannot lose its port to another process.
        _store = distributed.TCPStore(
            address,
            int(port[0]),
            is_master=True,
            wait_for_workers=False,
            multi_tenant=True,
            master_listen_fd=listener.detach(),
        )
    ddl.bcast_(port, name="MASTER_PORT")
    os.environ.setdefault("RANK", str(ddl.rank()))
    os.environ.setdefault("WORLD_SIZE", str(ddl.size()))
    os.environ["MASTER_ADDR"] = address
    os.environ["MASTER_PORT"] = str(port[0])


def _address_that_all_reach() -> str:
    beacon = Beacon() if ddl.rank() == 0 else None
    try:
        table = np.zeros((_MOST_ADDRESSES, _ADDRESS_BYTES), np.int32)
        where = np.zeros(1 + TOKEN_BYTES, np.int32)
        if beacon is not None:
            for row, text in zip(table, own_addresses(), strict=False):
                row[: len(text)] = list(text.encode())
            where[:] = [beacon.port, *beacon.token]
        ddl.bcast_(table, name="addresses of rank 0")
        ddl.bcast_(where, name="where rank 0 answers")
        addresses = [bytes(row[row != 0].astype(np.uint8)).decode() for row in table if row.any()]
        # One rank a host is enough: the others of the host see what it sees.
        asks = ddl.local_rank() == 0 and addresses
        token = where[1:].astype(np.uint8).tobytes()
        answers = reached(addresses, int(where[0]), token) if asks else [True] * len(addresses)
        by_all = np.array([int(answer) for answer in answers] or [0], np.int32)
        by_all = ddl.allreduce(by_all, op="min", name="addresses that are reached")
    finally:
        if beacon is not None:
            beacon.close()
    for address, answered in zip(addresses, by_all.tolist(), strict=False):
        if answered:
            return address
    tried = ", ".join(addresses) or "none"
    raise ddl.DDLError(
        f"[ERROR DDL-1-5] no address of rank 0's host is reached by all ranks (tried {tried}); in torch's "
        "env:// rendezvous; set MASTER_ADDR and MASTER_PORT, or open the hosts' ports to each other",
        5,
    )
