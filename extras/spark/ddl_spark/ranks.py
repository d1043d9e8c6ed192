"""A cluster over the ranks of a job of DDL: every rank has workers, rank 0 the master and the command."""

from __future__ import annotations

import argparse
import contextlib
import json
import secrets
import socket
import time
from pathlib import Path
from typing import Any

from ddl_spark.cluster import LOOPBACK, SparkClusterError, StandaloneCluster
from ddl_spark.command import Command

_TOKEN_BYTES = 32


def _common_address(ddl: Any) -> str:
    """The address of rank 0 that all ranks reach."""
    import numpy as np
    from ddlrun.addresses import Beacon, own_addresses, reached

    if ddl.num_hosts() == 1:
        return LOOPBACK
    beacon = Beacon() if ddl.rank() == 0 else None
    contact = {"port": beacon.port, "token": beacon.token.hex(), "all": own_addresses()} if beacon else None
    contact = _broadcast(ddl, contact)
    try:
        answers = reached(contact["all"], contact["port"], bytes.fromhex(contact["token"]))
        common = ddl.allreduce(np.array([*answers, True], dtype=np.int32), "min")
    finally:
        if beacon:
            beacon.close()
    for address, answered in zip(contact["all"], common, strict=False):
        if answered:
            return str(address)
    raise SparkClusterError(
        "no address of rank 0's host is reached from all hosts; "
        f"{', '.join(contact['all']) or 'it has none'}; "
        "open the network between the hosts, or start the cluster on one of them"
    )


def _broadcast(ddl: Any, value: Any) -> Any:
    """Returns rank 0's value on every rank."""
    import numpy as np

    data = np.frombuffer(json.dumps(value).encode(), dtype=np.uint8).astype(np.int32)
    size = int(ddl.bcast(np.array([len(data)], dtype=np.int32))[0])
    if ddl.rank():
        data = np.zeros(size, dtype=np.int32)
    return json.loads(bytes(ddl.bcast(data).astype(np.uint8)))


def run(ddl: Any, options: argparse.Namespace) -> int:
    """Workers on every rank, the master and the command on rank 0."""
    from ddlrun.addresses import create_server

    limits = {"memory": options.memory, "limit": options.limit}
    address = _common_address(ddl)
    folder = Path(options.folder) / f"rank{ddl.rank()}" if options.folder else None
    if ddl.rank():
        contact = _broadcast(ddl, None)
        with socket.create_connection((address, contact["port"]), timeout=options.limit) as line:
            line.sendall(bytes.fromhex(contact["token"]))
            join = (contact["master"], contact["secret"])
            with StandaloneCluster(
                options.workers,
                options.cores,
                folder=folder,
                address=line.getsockname()[0],
                join=join,
                **limits,
            ):
                # Until rank 0 says that the command has ended, which may take any time, or is no more.
                line.settimeout(None)
                line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                return 0 if line.recv(1) else 1
    token = secrets.token_bytes(_TOKEN_BYTES)
    lines: list[socket.socket] = []
    with (
        create_server(address, backlog=1024) as listener,
        StandaloneCluster(
            options.workers, options.cores, folder=folder, address=address, **limits
        ) as cluster,
    ):
        contact = {"port": listener.getsockname()[1], "token": token.hex(), "master": cluster.master}
        _broadcast(ddl, {**contact, "secret": cluster.secret})
        _accept(listener, lines, ddl.size() - 1, token, options.limit)
        cluster.wait_for_workers(options.workers * ddl.size())
        try:
            return Command(options.command, cluster).result()
        finally:
            for line in lines:
                with line, contextlib.suppress(OSError):
                    line.sendall(b"e")


def _accept(
    listener: socket.socket, lines: list[socket.socket], count: int, token: bytes, limit: float
) -> None:
    """Takes the connections of so many ranks, and of nobody else's processes."""
    until = time.monotonic() + limit
    while len(lines) < count:
        listener.settimeout(max(0.01, until - time.monotonic()))
        try:
            line, _ = listener.accept()
        except TimeoutError:
            raise SparkClusterError(
                f"{count - len(lines)} of {count} other ranks did not come within {limit:g} s; "
                "give more time by --limit"
            ) from None
        line.settimeout(5.0)
        with contextlib.suppress(OSError):
            received = b""
            while len(received) < len(token) and (part := line.recv(len(token) - len(received))):
                received += part
            if secrets.compare_digest(received, token):
                lines.append(line)
                continue
        line.close()
