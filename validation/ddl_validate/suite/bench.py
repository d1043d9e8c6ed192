"""What a check works with: the hosts, the way to start programs on them, how much to do."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..common.own_package import module_variables
from ..common.running import run_program
from .checks.environment import Checked
from .levels import Level
from .model import CheckResult

#: What ddlrun calls this machine where it was told no hosts.
LOCALHOST = "localhost"


@dataclass(frozen=True)
class Host:
    """name: for ddlrun. cores: that a rank may have. rack: its number, 0 where nobody said. facts: what
    `ddlrun -check` found.
    """

    name: str
    cores: int
    rack: int
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class Bench:
    """prefix:   the environment whose programs are started
    options:   of ddlrun, beside hosts and number of ranks
    hosts:     those that ddlrun can start on, in the order of the ranks
    has_racks: is it known which rack a host is in?
    ranks:     of each host in trainings and all-reduces
    gpus:      of each host; 0: processors are validated
    tolerance: share of an expected figure that may be missing
    folder:    for logs and files of the checks; on a file system that rank 0's host sees
    say:       takes a line about progress
    own_name:  this machine's, where it is validated alone
    log_hours: of the kernel's log that count
    rails:     ports to measure one by one; none: those of one rate that all hosts have
    """

    prefix: Path
    options: tuple[str, ...]
    hosts: tuple[Host, ...]
    has_racks: bool
    ranks: int
    gpus: int
    level: Level
    tolerance: float
    folder: Path
    say: Callable[[str], None]
    own_name: str = LOCALHOST
    log_hours: float = 24.0
    rails: tuple[str, ...] = ()

    def command(
        self,
        program: Sequence[str],
        hosts: Sequence[Host] | None = None,
        ranks: int | None = None,
        variables: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
    ) -> list[str]:
        """ddlrun's words that start `program` with `ranks` processes on each of `hosts` (default: all).
        words: further ones for ddlrun.
        """
        chosen = self.hosts if hosts is None else hosts
        number = self.ranks if ranks is None else ranks
        environment = {**module_variables(), **(variables or {})}
        handed = [word for name, value in environment.items() for word in ("-x", f"{name}={value}")]
        listed = ",".join(f"{host.name}:{number}" for host in chosen)
        # alone on this machine there is nothing to log in to
        where = ["-np", str(number)] if [host.name for host in chosen] == [self.own_name] else ["-H", listed]
        where += self._racks(chosen)
        return [str(self.prefix / "bin/ddlrun"), *self.options, *where, *arguments, *handed, *program]

    def _racks(self, hosts: Sequence[Host]) -> list[str]:
        """What DDL gets to know about the racks of these hosts, if they are in several of one size."""
        sizes = Counter(host.rack for host in hosts)
        if not self.has_racks or len(sizes) < 2 or len(set(sizes.values())) > 1:
            return []
        return ["-nodes", str(sizes[hosts[0].rack]), "-racks", str(len(sizes))]

    def start(
        self,
        name: str,
        program: Sequence[str],
        result: CheckResult,
        hosts: Sequence[Host] | None = None,
        ranks: int | None = None,
        variables: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
    ) -> str:
        """What `program` printed. Its command and its log (`name`.log) are noted in `result`. RunFailed
        where it failed or took longer than a check may.
        """
        command = self.command(program, hosts, ranks, variables, arguments)
        log = self.folder / f"{name}.log"
        result.commands.append(shlex.join(command))
        result.logs.append(str(log))
        return run_program(command, log, self.level.limit, name)

    def of(self, hosts: Sequence[Host]) -> Bench:
        """The same on fewer hosts."""
        return replace(self, hosts=tuple(hosts))


def hosts_of(usable: Sequence[Checked], racks: Sequence[int] | None) -> tuple[Host, ...]:
    """racks: of each host; None: not known."""
    numbers = racks or [0] * len(usable)
    return tuple(
        Host(host.name, _cores(host.facts), rack, host.facts)
        for host, rack in zip(usable, numbers, strict=True)
    )


_RANK_MEMORY = 1 << 30  # bytes that a rank of a training takes, with its framework


def ranks_of(hosts: Sequence[Host], requested: int | None) -> int:
    """Ranks of each host: as many as the user asked for; else as the host with the fewest has GPUs, or cores
    and free memory.
    """
    if requested is not None:
        return requested
    gpus = min(len(host.facts.get("gpus") or ()) for host in hosts)
    if gpus:
        return gpus
    return max(1, min(min(host.cores, _room(host.facts)) for host in hosts))


def _room(facts: Mapping[str, Any]) -> int:
    free = facts.get("memory_free_bytes")
    return int(free) // _RANK_MEMORY if free is not None else 1


def _cores(facts: Mapping[str, Any]) -> int:
    domains = facts.get("domains") or []
    return max(1, sum(len(domain.get("cores", ())) for domain in domains))
