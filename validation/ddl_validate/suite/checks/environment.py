"""The hosts as ddlrun sees them: those that it cannot start on, and those that differ from the others."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..attribution import different
from ..errors import ValidateError
from ..kinds import FEWEST, by_kind, kinds_of
from ..model import CheckResult, Finding, Kind, status_of

TITLE = "hosts, software and settings, the same everywhere"
_LIMIT = 180.0
_GRACE = 10.0
_LARGEST_SKEW = 2.0  # seconds between clocks: beyond it Kerberos, make and logs go wrong
_LEAST_MEMORY = 0.95  # of the others': less is a module that is gone or disabled
_FREE_MEMORY = 0.2  # of a host's memory that must be free for a training

# What must be the same on all hosts of a job: key of ddlrun's facts, and its words.
_SAME = {
    "machine": "architecture",
    "python": "Python",
    "release": "release of the environment",
    "ddl": "DDL",
    "loaded_mpi": "MPI",
    "loaded_ddl": "loaded DDL",
}
# On all hosts of one kind.
_SAME_OF_KIND = {
    "glibc": "C library",
    "fabrics": "network fabrics",
    "quota": "limit of processor time",
}
# What differs so stops no training: a newer patch of the system is one.
_WARNINGS = ("python", "glibc")


@dataclass(frozen=True)
class Checked:
    """A host. state: ok or failed; problem: ddlrun's words for what failed."""

    name: str
    state: str
    problem: str
    facts: Mapping[str, Any]


def ask(prefix: Path, arguments: Sequence[str]) -> list[Checked]:
    """What `ddlrun WORDS -check` says of each host. ValidateError where it does not get so far."""
    command = [str(prefix / "bin/ddlrun"), *arguments, "-check", "-json"]
    out, err = answer(command)
    try:
        hosts = json.loads(out)["hosts"]
        return [
            Checked(
                str(host["host"]),
                str(host["state"]),
                str(host.get("problem") or ""),
                host.get("facts") or {},
            )
            for host in hosts
        ]
    except (ValueError, KeyError, TypeError):
        lines = (err or out).strip().splitlines()
        raise ValidateError(lines[0] if lines else f"no answer from: {' '.join(command)}") from None


def answer(command: Sequence[str]) -> tuple[str, str]:
    """Both outputs. What interrupts the wait ends the command first, which then ends what it started."""
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    except OSError as error:
        raise ValidateError(f"{command[0]}: {error.strerror}; name an environment by --prefix") from None
    try:
        return child.communicate(timeout=_LIMIT)
    except BaseException as error:
        child.terminate()
        try:
            child.communicate(timeout=_GRACE)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise ValidateError(f"no answer within {_LIMIT:.0f} s from: {' '.join(command)}") from None
        raise


def check(hosts: Sequence[Checked], command: str, occupied: bool = False) -> CheckResult:
    """The findings about hosts that were asked. occupied: jobs run there, which may use the memory"""
    start = time.monotonic()
    findings = [
        Finding(
            Kind.ENVIRONMENT,
            f"host {host.name}",
            f"ddlrun cannot start on {host.name}: {host.problem}",
            "the end of the message says what to do; `ddlrun -check` shows it again",
            (host.name,),
        )
        for host in hosts
        if host.state != "ok"
    ]
    usable = [host for host in hosts if host.state == "ok"]
    findings += differences(usable, occupied)
    kinds = kinds_of({host.name: host.facts for host in usable})
    return CheckResult(
        "environment",
        TITLE,
        status_of(findings),
        time.monotonic() - start,
        findings=findings,
        facts={"hosts": {host.name: dict(host.facts) for host in usable}, "kinds": kinds},
        commands=[command],
    )


def differences(hosts: Sequence[Checked], occupied: bool = False) -> list[Finding]:
    """Hosts that differ from most of the others, in some things from those of their kind. With two hosts that
    differ, both are named: nobody knows which of them is right.
    """
    named = {host.name: host for host in hosts}
    kinds = kinds_of({name: host.facts for name, host in named.items()})
    groups = [[named[name] for name in group] for group in by_kind(named, kinds)]
    findings = [finding for key, noun in _SAME.items() for finding in _compared(hosts, key, noun)]
    for group in groups:
        findings += [
            finding for key, noun in _SAME_OF_KIND.items() for finding in _compared(group, key, noun)
        ]
        findings += _less_memory(group)
    for host in hosts:
        total, free = host.facts.get("memory_bytes"), host.facts.get("memory_free_bytes")
        if total and free is not None and free < _FREE_MEMORY * total and not occupied:
            findings.append(
                Finding(
                    Kind.ENVIRONMENT,
                    f"host {host.name}",
                    f"{host.name} has {free / 1e9:.1f} GB of its {total / 1e9:.1f} GB of memory free",
                    "look for processes that an earlier job has left",
                    (host.name,),
                    "memory_free_bytes",
                )
            )
        skew = host.facts.get("clock_s")
        if isinstance(skew, int | float) and abs(skew) > _LARGEST_SKEW:
            findings.append(
                Finding(
                    Kind.ENVIRONMENT,
                    f"host {host.name}",
                    f"the clock of {host.name} is {abs(skew):.0f} s {'ahead' if skew > 0 else 'behind'}",
                    "look at its time service (chrony, ntpd)",
                    (host.name,),
                    "clock_s",
                )
            )
    return findings


def _compared(hosts: Sequence[Checked], key: str, noun: str) -> list[Finding]:
    values = {host.name: _text(host.facts.get(key)) for host in hosts}
    return different(values, key, noun, lambda _: key not in _WARNINGS)


def _less_memory(hosts: Sequence[Checked]) -> list[Finding]:
    """Hosts that have less memory than most of their kind; one that has more says nothing of the others."""
    sizes = {host.name: int(host.facts.get("memory_bytes") or 0) for host in hosts}
    usual = statistics.median_high(sizes.values()) if sizes else 0
    return [
        Finding(
            Kind.ENVIRONMENT,
            f"host {name}",
            f"{name} has {size / 1e9:.1f} GB of memory; others have {usual / 1e9:.1f}",
            "look for a memory module that is missing or disabled",
            (name,) if len(hosts) >= FEWEST else (),
            "memory_bytes",
        )
        for name, size in sizes.items()
        if size < _LEAST_MEMORY * usual
    ]


def _text(value: Any) -> str:
    if value is None or value == []:
        return "none"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
