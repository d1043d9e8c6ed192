"""The ranks meet in torch's store: each says where it is, rank 0 says who is where."""

from __future__ import annotations

import json
import os
import re
import socket
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Protocol

from ddlrun import networks
from ddlrun.checks import probe
from ddlrun.private_folder import is_private, private_folder

from ddl._errors import DDLError
from ddl.bootstrap.ranks import Ranks

#: The store refuses values of more than 8 MiB.
_PART_BYTES = 4 << 20
_NAMED_AT_MOST = 8
_JOB_NAME = re.compile(r"ddl-[0-9a-f]{32}")


class Store(Protocol):
    """What is used of torch.distributed.Store."""

    def set(self, key: str, value: bytes) -> None: ...
    def get(self, key: str) -> bytes: ...
    def check(self, keys: Sequence[str]) -> bool: ...
    def add(self, key: str, amount: int) -> int: ...
    def delete_key(self, key: str) -> bool: ...


@dataclass(frozen=True)
class Job:
    """The ranks, host by host; hosts in the order of their lowest ranks."""

    name: str
    hosts: tuple[tuple[str, tuple[int, ...]], ...]
    processes: dict[int, int]
    host_index: int
    rank: int
    #: Networks that do not lead to other hosts.
    left_out: tuple[str, ...] = ()

    @property
    def leader(self) -> bool:
        """Whether this rank is the one that starts its host's server."""
        return self.rank == self.hosts[self.host_index][1][0]


def _host_key() -> str:
    """The same in processes that share memory and a loopback interface, and in no others."""
    parts = [socket.gethostname(), Path("/proc/sys/kernel/random/boot_id").read_text().strip()]
    for path, attribute in (("/dev/shm", "st_dev"), ("/proc/self/ns/net", "st_ino")):
        try:
            parts.append(str(getattr(Path(path).stat(), attribute)))
        except OSError:
            parts.append("none")
    return "/".join(parts)


def group_by_host(keys: Sequence[str]) -> list[tuple[str, tuple[int, ...]]]:
    """(name, ranks) of every host, from each rank's host key. Hosts of the same name are told apart."""
    members: dict[str, list[int]] = {}
    for rank, key in enumerate(keys):
        members.setdefault(key, []).append(rank)
    hosts: list[tuple[str, tuple[int, ...]]] = []
    taken: set[str] = set()
    for key, ranks in members.items():
        plain = name = key.partition("/")[0]
        count = 1
        while name in taken:
            count += 1
            name = f"{plain}-{count}"
        taken.add(name)
        hosts.append((name, tuple(ranks)))
    return hosts


class Rendezvous:
    """One start of the job. Its keys are removed once the last rank has read them."""

    def __init__(self, ranks: Ranks, seconds: float) -> None:
        self.ranks = ranks
        self.seconds = seconds
        self._end = time.monotonic() + seconds
        self._address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        try:
            import torch.distributed as distributed
        except ImportError as error:
            raise DDLError(
                f"[ERROR DDL-1-5] the environment says rank {ranks.rank} of {ranks.size} (RANK, WORLD_SIZE), "
                f"but torch, whose store the ranks meet in, cannot be imported ({error}); in ddl.init; start "
                "the program with ddlrun or mpirun, or unset RANK and WORLD_SIZE",
                5,
            ) from error
        self._prefixed: Any = distributed.PrefixStore
        # torchrun may serve the store already. Where it does not, rank 0 does; torch later takes the same.
        served = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        try:
            self._base: Any = distributed.TCPStore(
                os.environ["MASTER_ADDR"],
                int(os.environ["MASTER_PORT"]),
                is_master=not served and ranks.rank == 0,
                timeout=timedelta(seconds=seconds),
                # it would not say who is missing
                wait_for_workers=False,
                multi_tenant=True,
            )
        except (RuntimeError, ValueError, OSError) as error:
            raise self._missing(f"torch's store cannot be reached: {_first_line(error)}") from error
        self._store: Store = self._prefixed(f"ddl/start/{ranks.restart}", self._base)

    def _missing(self, problem: str) -> DDLError:
        return DDLError(
            f"[ERROR DDL-1-8] {problem}; in rank {self.ranks.rank} of {self.ranks.size}, at the store "
            f"{self._address}, within {self.seconds:g} s; every rank must import ddl (or call ddl.init): "
            "look at the output of the others, or raise -timeout in DDL_OPTIONS",
            8,
        )

    def _await(self, keys: Sequence[str]) -> list[str]:
        """The keys that are still missing at the end of the limit."""
        pause = 0.001
        missing = list(keys)
        try:
            while missing:
                if self._store.check(missing):
                    return []
                if time.monotonic() > self._end:
                    return [key for key in missing if not self._store.check([key])]
                time.sleep(pause)
                pause = min(2 * pause, 0.05)
        except RuntimeError as error:
            raise self._missing(f"torch's store is gone: {_first_line(error)}") from error
        return []

    def agree(self) -> Job:
        """Says where this rank is, and learns where the others are."""
        leading = probe.interfaces_to([os.environ["MASTER_ADDR"]])
        hello = {"host": _host_key(), "process": os.getpid(), "networks": probe.networks(leading)}
        self._store.set(f"rank/{self.ranks.rank}", json.dumps(hello).encode())
        if self.ranks.rank == 0:
            self._decide()
        if self._await(["job"]):
            raise self._missing("rank 0 did not say who takes part")
        job = json.loads(self._store.get("job"))
        if not _JOB_NAME.fullmatch(str(job["name"])):
            raise self._missing(f"torch's store has a job of the name {str(job['name'])[:40]!r}")
        self._count_out("read", ["job"], self.ranks.size)
        hosts = tuple((name, tuple(ranks)) for name, ranks in job["hosts"])
        host_index = next(i for i, (_, ranks) in enumerate(hosts) if self.ranks.rank in ranks)
        processes = dict(enumerate(job["processes"]))
        # What the store says may be anybody's: only networks are taken.
        left_out = tuple(str(ip_network(str(network))) for network in job["left_out"])
        return Job(job["name"], hosts, processes, host_index, self.ranks.rank, left_out)

    def _decide(self) -> None:
        keys = [f"rank/{rank}" for rank in range(self.ranks.size)]
        missing = self._await(keys)
        if missing:
            names = ", ".join(key.partition("/")[2] for key in missing[:_NAMED_AT_MOST])
            more = f" and {len(missing) - _NAMED_AT_MOST} more" if len(missing) > _NAMED_AT_MOST else ""
            raise self._missing(f"rank {names}{more} did not come")
        hellos = [json.loads(self._store.get(key)) for key in keys]
        for key in keys:
            self._store.delete_key(key)
        job = {
            "name": f"ddl-{uuid.uuid4().hex}",
            "hosts": group_by_host([rank["host"] for rank in hellos]),
            "processes": [rank["process"] for rank in hellos],
            "left_out": networks.addresses_left_out(
                {rank["host"]: networks.parse(rank["networks"]) for rank in hellos}
            ),
        }
        self._store.set("job", json.dumps(job).encode())

    def _count_out(self, counter: str, keys: Sequence[str], readers: int) -> None:
        """Removes keys when the last of the ranks that read them has done so."""
        if self._store.add(counter, 1) == readers:
            for key in [*keys, counter]:
                self._store.delete_key(key)

    def hand_out(self, job: Job, environments: Mapping[int, Mapping[str, str]]) -> None:
        """Gives each rank of this host the way to the server.

        Not by the store: anybody who reaches its port may write there, and variables of MPI may name
        libraries to load.
        By files that only this user can write; the store says that they are there.
        """
        folder = private_folder(_shared_memory(), "ddl-bootstrap") / job.name
        folder.mkdir(mode=0o700)
        for rank, variables in environments.items():
            (folder / str(rank)).write_text(json.dumps(dict(variables)))
        self._store.set(f"server/{job.host_index}", str(folder).encode())

    def receive(self, job: Job) -> dict[str, str]:
        """The variables by which this rank finds the server of its host."""
        key = f"server/{job.host_index}"
        if self._await([key]):
            raise self._missing("the lowest rank of this host did not start a server for it")
        folder = Path(os.fsdecode(self._store.get(key)))
        self._count_out(f"{key}/read", [key], len(job.hosts[job.host_index][1]))
        # The way there is the store's word, which may be anybody's; what is read must be this user's.
        if folder.name != job.name or not (is_private(folder.parent) and is_private(folder)):
            raise DDLError(
                f"[ERROR DDL-1-5] torch's store names {str(folder)!r}, which is no private folder of this "
                "user; in rank "
                f"{self.ranks.rank} of {self.ranks.size}, at the store {self._address}; see who else can "
                "reach that port, "
                "and start the job again",
                5,
            )
        file = folder / str(self.ranks.rank)
        variables: dict[str, str] = json.loads(file.read_text())
        file.unlink()
        for emptied in (folder, folder.parent):
            try:
                emptied.rmdir()
            except OSError:
                break  # others have still to read theirs, or other jobs are starting
        return variables

    def exchange(self, job: Job) -> Exchange:
        """The way by which the servers of this job reach each other."""
        return Exchange(self._prefixed(f"ddl/{job.name}", self._base), job.host_index, len(job.hosts))


def _shared_memory() -> Path:
    """Ranks of one host, as _host_key() has it, see the same."""
    folder = Path("/dev/shm")
    return folder if os.access(folder, os.W_OK) else Path(tempfile.gettempdir())


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


class Exchange:
    """Every host brings bytes, and gets those of all in the order of the hosts."""

    def __init__(self, store: Store, host_index: int, hosts: int) -> None:
        self._store = store
        self._host_index = host_index
        self._hosts = hosts

    def all_gather(self, number: int, ours: bytes) -> bytes:
        """Blocks; every host must call it with the same number. The first host joins the parts, so that the
        others need ask for one value and not for one of each.
        """
        self._put(f"{number}/{self._host_index}", ours)
        if self._host_index != 0:
            return self._get(f"{number}/all")
        everything = b""
        for host in range(self._hosts):
            everything += self._get(f"{number}/{host}")
            self._delete(f"{number}/{host}")
        self._put(f"{number}/all", everything)
        # all hosts are here, so they have read what came before
        if number > 0:
            self._delete(f"{number - 1}/all")
        return everything

    def _put(self, key: str, value: bytes) -> None:
        parts = [value[at : at + _PART_BYTES] for at in range(0, len(value), _PART_BYTES)] or [b""]
        for index, part in enumerate(parts):
            self._store.set(f"{key}/{index}", part)
        self._store.set(key, str(len(parts)).encode())

    def _get(self, key: str) -> bytes:
        return b"".join(self._store.get(f"{key}/{index}") for index in range(int(self._store.get(key))))

    def _delete(self, key: str) -> None:
        for index in range(int(self._store.get(key))):
            self._store.delete_key(f"{key}/{index}")
        self._store.delete_key(key)
