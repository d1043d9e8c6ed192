"""Where the tasks of a cluster listen: supervisors take ports for their own, MPI tells them to all others."""

import fcntl
import json
import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import Code, LaunchError
from .plan import CHIEF, SERVER, WORKER, Asked, host_of_server, task_of_rank

_LOOPBACK = "127.0.0.1"
_LOCAL = ("localhost", _LOOPBACK)
_SIOCGIFADDR = 0x8915


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
            made = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            continue  # no IPv6 here
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            made.bind((address, 0))
            return made
        except OSError:
            made.close()
    raise LaunchError(
        Code.CLUSTER,
        "no free port can be had",
        f"on host {socket.gethostname()}",
        "see which processes hold so many: `ss -tlnp`",
    )


def address_of(interface: str) -> str:
    """The IPv4 address of a network interface. Raises LaunchError where it has none."""
    name = interface.encode()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            answer = fcntl.ioctl(asked.fileno(), _SIOCGIFADDR, struct.pack("256s", name[:15]))
        except OSError as error:
            raise LaunchError(
                Code.CLUSTER,
                f"the network interface {interface} has no IPv4 address: {error.strerror}",
                f"on host {socket.gethostname()}",
                "name another one by -interface, or none",
            ) from None
    return socket.inet_ntoa(answer[20:24])


def place(asked: Asked, comm: Any) -> Place:
    """Where this supervisor is. Collective."""
    group = os.environ.get("GROUP_RANK", "")
    # A rankfile of the user's own says which rank is where, and nobody else knows.
    known = group.isdecimal() and int(group) < len(asked.hosts)
    host = asked.hosts[int(group)] if known else socket.gethostname()
    everybody = comm.allgather((host, os.sched_getaffinity(0)))
    cpus = frozenset[int]().union(*(cpus for there, cpus in everybody if there == host))
    if len({there for there, _ in everybody}) == 1:
        address = _LOOPBACK
    elif asked.interface:
        address = address_of(asked.interface)
    else:
        address = socket.gethostname() if host in _LOCAL else host
    return Place(host, address, cpus)


def own_tasks(asked: Asked, here: Place, comm: Any) -> list[Own]:
    """The tasks of this supervisor, that of its rank first. Collective."""
    rank = comm.Get_rank()
    hosts = list(dict.fromkeys(there := comm.allgather(here.host)))
    is_first = there.index(here.host) == rank
    named = [task_of_rank(asked.chief, rank)]
    if is_first:
        servers = range(asked.servers)
        named += [(SERVER, index) for index in servers if host_of_server(index, hosts) == here.host]
    ports = [taken_port() for _ in named]
    told = [
        (kind, index, f"{here.address}:{port.getsockname()[1]}")
        for (kind, index), port in zip(named, ports, strict=True)
    ]
    cluster = _cluster([task for tasks in comm.allgather(told) for task in tasks])
    return [
        Own(kind, index, port, json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}}))
        for (kind, index), port in zip(named, ports, strict=True)
    ]


def _cluster(told: Sequence[tuple[str, int, str]]) -> dict[str, list[str]]:
    """Addresses by type of task, in the order of their indices; types without a task are left out."""
    found = {
        kind: [address for of, _, address in sorted(told, key=lambda task: task[1]) if of == kind]
        for kind in (CHIEF, WORKER, SERVER)
    }
    return {kind: addresses for kind, addresses in found.items() if addresses}
