"""Settings of kernel, firmware, limits and mounts, compared between hosts of a kind; what disturbs a host."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from ..attribution import different, listed
from ..bench import Bench
from ..kinds import by_kind, kinds_of
from ..model import CheckResult, Finding, Kind, Status, status_of, warning
from .asking import ask

TITLE = "kernel, limits, mounts, clocks, memory errors, left-over processes"
_ABSENT = "not mounted"
_LEAST_MEMLOCK = 1 << 30
_ENOUGH = "1 GiB or more"
_FAULTS = (("nvidia-peermem", "not loaded"), ("fabric-manager", "does not run"))
_MANY_CORRECTED = 100  # errors of memory: a few are what it corrects them for
_ERRORS, _CHECKS, _PROCESSES = "memory-errors", "machine-checks", "processes"


def check(bench: Bench, before: list[CheckResult]) -> CheckResult:
    start = time.monotonic()
    result = CheckResult("settings", TITLE, Status.PASSED)
    states = ask(bench, result, "settings", (), "settings")
    kinds = kinds_of({host.name: host.facts for host in bench.hosts})
    result.facts = {"hosts": states}
    result.findings = [*compare(states, kinds), *of_each(states)]
    result.not_judged = not_judged(states)
    result.status = status_of(result.findings)
    result.seconds = time.monotonic() - start
    return result


def compare(states: Mapping[str, Any], kinds: Mapping[str, str]) -> Iterator[Finding]:
    """What differs between hosts of a kind that tell it."""
    for group in by_kind(states, kinds):
        names = dict.fromkeys(name for host in group for name in states[host]["settings"])
        for name in names:
            values = {host: states[host]["settings"].get(name) for host in group}
            present = {host: _comparable(name, value) for host, value in values.items() if value is not None}
            yield from different(present, name, name, partial(_is_fault, name))
        points = dict.fromkeys(point for host in group for point in states[host]["mounts"])
        for point in points:
            values = {host: states[host]["mounts"].get(point, _ABSENT) for host in group}
            remedy = "mount it as the others do"
            yield from different(values, f"mount:{point}", f"mount of {point}", _ABSENT.__eq__, remedy)


def _comparable(name: str, value: str) -> str:
    """The system makes the limit of locked memory by the size of all of it: large ones differ a little."""
    enough = name == "memlock" and not 0 <= _memlock(value) < _LEAST_MEMLOCK
    return _ENOUGH if enough else value


def _is_fault(name: str, value: str) -> bool:
    """Whether RDMA or NVLink do not work with it; other settings differ, and that is all."""
    return (name == "memlock" and value != _ENOUGH) or (name, value) in _FAULTS


def of_each(states: Mapping[str, Any]) -> Iterator[Finding]:
    """What a host tells by itself."""
    for host, state in states.items():
        where = f"host {host}"
        for process in state["processes"] if not state["occupied"] else ():
            text = (
                f"process {process['pid']} ({process['command']}) of {process['user']} uses "
                f"{process['cores']:.1f} cores of {host}, and no job of a scheduler runs there"
            )
            remedy = "end what an earlier job has left, and look at the scheduler's epilog"
            yield Finding(Kind.ENVIRONMENT, where, text, remedy, (host,), _PROCESSES)
        errors = state["memory_errors"] or {"corrected": 0, "uncorrected": 0}
        if errors["uncorrected"]:
            text = f"{host} has counted {errors['uncorrected']} uncorrected errors of memory (EDAC)"
            remedy = "look for the module (edac-util, the event log of its management board), and replace it"
            yield Finding(Kind.ENVIRONMENT, where, text, remedy, (host,), _ERRORS)
        elif errors["corrected"] >= _MANY_CORRECTED:
            text = f"{host} has counted {errors['corrected']} corrected errors of memory (EDAC)"
            yield warning(Kind.ENVIRONMENT, where, text, "look for the module (edac-util)", _ERRORS)
        if state["machine_checks"]:
            text = f"{host} has had {state['machine_checks']} machine check exceptions since it was started"
            yield warning(Kind.ENVIRONMENT, where, text, "look at mcelog or rasdaemon", _CHECKS)
    small = [
        host
        for host, state in states.items()
        if state["rdma"] and 0 <= _memlock(state["settings"].get("memlock")) < _LEAST_MEMLOCK
    ]
    if small and len(small) == len(states):  # where some have more, they differ, and that is said
        limit = states[small[0]]["settings"]["memlock"]
        text = f"ranks on {listed(small)} may lock {limit} bytes of memory, and RDMA needs it locked"
        remedy = "set memlock to unlimited (limits.conf, or the scheduler's PropagateResourceLimits)"
        where = f"host {small[0]}" if len(small) == 1 else "cluster"
        yield warning(Kind.ENVIRONMENT, where, text, remedy, "memlock")


def _memlock(text: str | None) -> int:
    """Bytes; negative where it is unlimited or not known."""
    match = re.match(r"[0-9]+", text or "")
    return int(match[0]) if match else -1


def not_judged(states: Mapping[str, Any]) -> dict[str, str]:
    """Names of what some hosts do not tell."""
    reasons = {}
    names = dict.fromkeys(name for state in states.values() for name in state["settings"])
    for name in names:
        silent = [host for host, state in states.items() if state["settings"].get(name) is None]
        if silent:
            reasons[name] = f"cannot be read by an ordinary user of {listed(silent)}, or is not there"
    for name, key in ((_ERRORS, "memory_errors"), (_CHECKS, "machine_checks")):
        silent = [host for host, state in states.items() if state[key] is None]
        if silent:
            reasons[name] = f"the kernel of {listed(silent)} counts none"
    if busy := [host for host, state in states.items() if state["occupied"]]:
        reasons[_PROCESSES] = f"jobs run, or may run, on {listed(busy)}"
    return reasons
