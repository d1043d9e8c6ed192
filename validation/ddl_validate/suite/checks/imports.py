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
from ..model import CheckResult, Finding, Kind, Status, status_of, warning
from ..probe.lines import heard
from .asking import program

TITLE = "frameworks are imported on every host, in the same versions"
_NEEDED = ("numpy", "ddl")
_REMEDY = "install the same environment on all hosts"
_SPARE = 0.5  # of the limit of the whole check, for one import


def check(bench: Bench, before: list[CheckResult]) -> CheckResult:
    start = time.monotonic()
    result = CheckResult("imports", TITLE, Status.PASSED)
    command = program(bench, "imports", f"{bench.level.limit * _SPARE:g}")
    try:
        answers = heard(bench.start("imports", command, result, ranks=1, variables=module_variables()))
    except RunFailed as error:
        result.status, result.reason = Status.BROKEN, error.line
        return result
    names = [host.name for host in bench.hosts]
    reports = {name: answers[rank] for rank, name in enumerate(names) if rank in answers}
    result.findings = [_silent(name) for name in names if name not in reports]
    result.findings += compare({name: report["modules"] for name, report in reports.items()})
    result.status = status_of(result.findings)
    result.facts = {
        "boots": {name: report["boot"] for name, report in reports.items() if report["boot"]},
        "versions": _versions(next(iter(reports.values()), {"modules": {}})["modules"]),
        "seconds": _seconds({name: report["modules"] for name, report in reports.items()}),
    }
    result.seconds = time.monotonic() - start
    return result


def compare(hosts: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[Finding]:
    """What each host cannot import, what it lacks, and what it has in another version than most."""
    findings = []
    modules = list(dict.fromkeys([*_NEEDED, *(module for imports in hosts.values() for module in imports)]))
    for module in modules:
        states = {name: _state(imports.get(module)) for name, imports in hosts.items()}
        wrong = [
            (name, entry["error"])
            for name, imports in hosts.items()
            if "error" in (entry := imports.get(module, {}))
        ]
        findings += [
            _finding(name, f"{module} cannot be imported on {name}: {error}", "install the environment again")
            for name, error in wrong
        ]
        good = Counter(state for state in states.values() if not state.startswith("error"))
        if not good:
            continue
        usual, number = good.most_common(1)[0]
        if usual == "missing" and module in _NEEDED:
            findings += [
                _finding(name, f"{module} is missing on {name}", "install powerai there")
                for name, state in states.items()
                if state == "missing"
            ]
        elif len(good) > 1 and number * 2 <= sum(good.values()):
            listed = "; ".join(f"{name}: {state}" for name, state in states.items())
            text = f"the hosts do not have the same {module}, and no version is that of most: {listed}"
            findings.append(Finding(Kind.ENVIRONMENT, "cluster", text, _REMEDY, figure=module))
        else:
            findings += [
                _differs(name, module, f"{module} on {name} is {state}, on the others {usual}", state)
                for name, state in states.items()
                if state not in ("error", usual)
            ]
    return findings


def _state(entry: Mapping[str, Any] | None) -> str:
    if entry is None:
        return "missing"
    return "error" if "error" in entry else str(entry["version"])


def _finding(host: str, text: str, remedy: str) -> Finding:
    return Finding(Kind.ENVIRONMENT, f"host {host}", text, remedy, (host,))


def _differs(host: str, module: str, text: str, state: str) -> Finding:
    """A host that lacks what the others have is drained; one that has more, or another version, is not."""
    if state == "missing" or module in _NEEDED:
        return Finding(Kind.ENVIRONMENT, f"host {host}", text, _REMEDY, (host,), module)
    return warning(Kind.ENVIRONMENT, f"host {host}", text, _REMEDY, module)


def _silent(host: str) -> Finding:
    return _finding(
        host, f"the program that imports the frameworks printed no result on {host}", "read the log"
    )


def _versions(modules: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    versions = {module: str(entry.get("version") or "") for module, entry in modules.items()}
    return {module: version for module, version in versions.items() if version and "." not in module}


def _seconds(hosts: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> dict[str, float]:
    """The median of all hosts for each framework; no figure, as it depends on the file system's cache."""
    times: dict[str, list[float]] = {}
    for imports in hosts.values():
        for module, entry in imports.items():
            if "seconds" in entry:
                times.setdefault(module, []).append(float(entry["seconds"]))
    return {module: statistics.median(values) for module, values in times.items()}
