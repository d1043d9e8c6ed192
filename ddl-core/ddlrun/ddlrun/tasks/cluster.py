"""Where the tasks of a cluster listen: supervisors take ports for their own, MPI tells them to all others."""

import json
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .. import addresses
from ..errors import Code, LaunchError
from .plan import CHIEF, SERVER, WORKER, ClusterRequest, host_of_server, task_of_rank

_LOOPBACK = "127.0.0.1"
_LOCAL = ("localhost", _LOOPBACK)


@dataclass(frozen=True)
class Own:
    """A task of this supervisor. port: keeps its port for the whole job. config: its TF_CONFIG."""

    type: str
    index: int
    port: socket.socket
    config: str

    def __str__(self) -> str:
        return f"{self.type} {self.index}"


@dataclass(frozen=True)
class Place:
    """Where a supervisor is. host: as messages name it. address: by which the others reach its tasks. cpus:
    that the ranks of its host may use together.
    """

    host: str
    address: str
    cpus: frozenset[int]


def taken_port() -> socket.socket:
    """A socket that keeps a free port from others, but not from a server of this job, which also sets
    SO_REUSEADDR, as gRPC's servers do: one that is bound and never listens is in nobody's way.
    """
    for family, address in ((socket.AF_INET6, "::"), (socket.AF_INET, "")):
        try:
            holder = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            continue  # no IPv6 here
        try:
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                holder.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            holder.bind((address, 0))
            return holder
        except OSError:
            holder.close()
    raise LaunchError(
        Code.CLUSTER,
        "no free port can be had",
        f"on host {socket.gethostname()}",
        "see which processes hold so many: `ss -tlnp`",
    )


def address_of(interface: str) -> str:
    """The address of a network interface. Raises LaunchError where it has none."""
    try:
        return addresses.address_of(interface)
    except OSError as error:
        raise LaunchError(
            Code.CLUSTER,
            f"the network interface {interface} has no address: {error.strerror}",
            f"on host {socket.gethostname()}",
            "name another one by -interface, or none",
        ) from None


def in_brackets(address: str) -> str:
    """An address as it stands before a colon and a port."""
    return f"[{address}]" if ":" in address else address


def place(request: ClusterRequest, comm: Any) -> Place:
    """Where this supervisor is. Collective."""
    group = os.environ.get("GROUP_RANK", "")
    # A rankfile of the user's own says which rank is where, and nobody else knows.
    is_named = group.isdecimal() and int(group) < len(request.hosts)
    host = request.hosts[int(group)] if is_named else socket.gethostname()
    everybody = comm.allgather((host, os.sched_getaffinity(0)))
    cpus = frozenset[int]().union(*(cpus for other, cpus in everybody if other == host))
    if len({other for other, _ in everybody}) == 1:
        address = _LOOPBACK
    elif request.interface:
        address = address_of(request.interface)
    else:
        address = socket.gethostname() if host in _LOCAL else host
    return Place(host, address, cpus)


def own_tasks(request: ClusterRequest, location: Place, comm: Any) -> list[Own]:
    """The tasks of this supervisor, that of its rank first. Collective."""
    rank = comm.Get_rank()
    hosts = list(dict.fromkeys(rank_hosts := comm.allgather(location.host)))
    is_first = rank_hosts.index(location.host) == rank
    named = [task_of_rank(request.chief, rank)]
    if is_first:
        servers = range(request.servers)
        named += [(SERVER, index) for index in servers if host_of_server(index, hosts) == location.host]
    ports = [taken_port() for _ in named]
    endpoints = [
        (kind, index, f"{in_brackets(location.address)}:{port.getsockname()[1]}")
        for (kind, index), port in zip(named, ports, strict=True)
    ]
    cluster = _cluster([task for tasks in comm.allgather(endpoints) for task in tasks])
    return [
        Own(kind, index, port, json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}}))
        for (kind, index), port in zip(named, ports, strict=True)
    ]


def _cluster(endpoints: Sequence[tuple[str, int, str]]) -> dict[str, list[str]]:
    """Addresses by type of task, in the order of their indices; types without a task are left out."""
    by_type = {
        kind: [address for of, _, address in sorted(endpoints, key=lambda task: task[1]) if of == kind]
        for kind in (CHIEF, WORKER, SERVER)
    }
    return {kind: addresses for kind, addresses in by_type.items() if addresses}
