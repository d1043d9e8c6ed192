"""Every framework of the environment is imported on every host, and has the same version on all."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from ...common.own_package import module_variables
from ...common.running import RunFailed
from ..bench import Bench
from ..model import CheckResult, Finding, Kind, Status
from ..probe.lines import heard
from .asking import program

TITLE = "frameworks are imported on every host, in the same versions"
_NEEDED = ("numpy", "ddl")
_REMEDY = "install the same environment on all hosts"
_SPARE = 0.5  # of the limit of the whole check, for one import


def check(bench: Bench, before: list[CheckResult]) -> CheckResult:
    began = time.monotonic()
    result = CheckResult("imports", TITLE, Status.PASSED)
    words = program(bench, "imports", f"{bench.level.limit * _SPARE:g}")
    try:
        told = heard(bench.start("imports", words, result, ranks=1, variables=module_variables()))
    except RunFailed as error:
        result.status, result.reason = Status.BROKEN, error.line
        return result
    names = [host.name for host in bench.hosts]
    found = {name: told[rank] for rank, name in enumerate(names) if rank in told}
    result.findings = [_silent(name) for name in names if name not in found]
    result.findings += compare({name: one["modules"] for name, one in found.items()})
    if result.findings:
        result.status = Status.FAILED
    result.facts = {
        "boots": {name: one["boot"] for name, one in found.items() if one["boot"]},
        "versions": _versions(next(iter(found.values()), {"modules": {}})["modules"]),
        "seconds": _seconds({name: one["modules"] for name, one in found.items()}),
    }
    result.seconds = time.monotonic() - began
    return result


def compare(hosts: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[Finding]:
    """Of each host, what it cannot import, what it lacks, and what it has in another version than most."""
    found = []
    modules = list(dict.fromkeys([*_NEEDED, *(module for own in hosts.values() for module in own)]))
    for module in modules:
        states = {name: _state(own.get(module)) for name, own in hosts.items()}
        wrong = [
            (name, one["error"]) for name, own in hosts.items() if "error" in (one := own.get(module, {}))
        ]
        found += [
            _finding(name, f"{module} cannot be imported on {name}: {error}", "install the environment again")
            for name, error in wrong
        ]
        good = Counter(state for state in states.values() if not state.startswith("error"))
        if not good:
            continue
        usual, number = good.most_common(1)[0]
        if usual == "missing" and module in _NEEDED:
            found += [
                _finding(name, f"{module} is missing on {name}", "install powerai there")
                for name, state in states.items()
                if state == "missing"
            ]
        elif len(good) > 1 and number * 2 <= sum(good.values()):
            listed = "; ".join(f"{name}: {state}" for name, state in states.items())
            text = f"the hosts do not have the same {module}, and no version is that of most: {listed}"
            found.append(Finding(Kind.ENVIRONMENT, "cluster", text, _REMEDY))
        else:
            found += [
                _finding(
                    name,
                    f"{module} on {name} is {state}, on the others {usual}",
                    _REMEDY,
                )
                for name, state in states.items()
                if state not in ("error", usual)
            ]
    return found


def _state(told: Mapping[str, Any] | None) -> str:
    if told is None:
        return "missing"
    return "error" if "error" in told else str(told["version"])


def _finding(host: str, text: str, remedy: str) -> Finding:
    return Finding(Kind.ENVIRONMENT, f"host {host}", text, remedy, (host,))


def _silent(host: str) -> Finding:
    return _finding(host, f"the program that imports the frameworks told nothing on {host}", "read the log")


def _versions(modules: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    told = {module: str(one.get("version") or "") for module, one in modules.items()}
    return {module: version for module, version in told.items() if version and "." not in module}


def _seconds(hosts: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> dict[str, float]:
    """Of each framework the median of all hosts. No figure: it is the file system's, and its cache's."""
    times: dict[str, list[float]] = {}
    for own in hosts.values():
        for module, told in own.items():
            if "seconds" in told:
                times.setdefault(module, []).append(float(told["seconds"]))
    return {module: statistics.median(values) for module, values in times.items()}
