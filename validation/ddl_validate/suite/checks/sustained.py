"""Load for minutes: hosts and links that lose speed when they get hot."""

from __future__ import annotations

import time
from dataclasses import replace

from ..bench import Bench
from ..kinds import FEWEST
from ..model import CheckResult, Expectation, Figure, Finding, Kind, Status, status_of
from .hosts import reasons_of
from .probing import probe

TITLE = "cores, memory and exchange under load for minutes"
_FIGURES = {
    "compute": ("Gop/s", 1e9, Kind.SLOW_HOST, "computes"),
    "memory": ("B/s", 1.0, Kind.SLOW_MEMORY, "copies in memory"),
}


def check(bench: Bench, before: list[CheckResult]) -> CheckResult:
    """The last minute is held against the first one."""
    start = time.monotonic()
    result = CheckResult("sustained", TITLE, Status.PASSED)
    seconds = bench.level.sustained
    if not seconds:
        result.status, result.reason = Status.SKIPPED, "from --level daily on, or with --sustained SECONDS"
        return result
    longer = replace(bench, level=replace(bench.level, seconds=seconds, limit=bench.level.limit + seconds))
    ranks = min(host.cores for host in bench.hosts)
    report = probe(longer, result, "sustained", ranks=ranks)
    names = [host.name for host in bench.hosts]
    shared = len(set(report["machines"])) < len(names)
    source = "ideal" if shared else "start"
    command = result.commands[-1]
    for name, host in zip(names, report["hosts"], strict=True):
        for key, (unit, scale, _, _) in _FIGURES.items():
            usual = Expectation(host["first"][key] / scale, source, bench.tolerance)
            value = host["last"][key] / scale
            figure = Figure(f"sustained.{key}", f"host {name}", value, unit, expected=usual, command=command)
            result.figures.append(figure)
    if len(names) > 1:
        first, last = report["exchanged"]
        usual = Expectation(first, source, bench.tolerance)
        where = f"{len(names)} host(s)"
        result.figures.append(
            Figure("sustained.exchange", where, last, "B/s", expected=usual, command=command)
        )
    result.findings = _findings(result, dict(zip(names, report["hosts"], strict=True)), seconds)
    if shared:
        result.not_judged["sustained"] = "hosts share a machine, and disturb each other"
    if bench.gpus:
        result.not_judged["sustained.gpu"] = "the load of GPUs is DCGM's: dcgmi diag -r 3 (--level burn-in)"
    result.facts = {"seconds": seconds, "cycles": report["cycles"], "hosts": report["hosts"]}
    result.status = status_of(result.findings)
    result.seconds = time.monotonic() - start
    return result


def _findings(
    result: CheckResult, hosts: dict[str, dict[str, dict[str, float]]], seconds: float
) -> list[Finding]:
    findings = []
    for figure in result.figures:
        if not figure.low or figure.expected is None:
            continue
        key = figure.name.removeprefix("sustained.")
        share = f"{figure.value / figure.expected.value:.0%} of what it did at first"
        if key == "exchange":
            text = f"after {seconds:.0f} s of load, all-reduces of all ranks are at {share}"
            remedy = "look at the temperatures of network cards and switches, and at other jobs"
            findings.append(Finding(Kind.SLOW_TIER, "cluster", text, remedy, figure=figure.name))
            continue
        host = figure.where.removeprefix("host ")
        kind, verb = _FIGURES[key][2:]
        reasons, remedy = reasons_of(hosts[host]["reasons"])
        text = "; ".join([f"after {seconds:.0f} s of load, {host} {verb} at {share}", *reasons])
        all_alike = all(other.low for other in result.figures if other.name == figure.name)
        drains = (host,) if len(hosts) >= FEWEST and not all_alike else ()
        findings.append(Finding(kind, figure.where, text, remedy, drains, figure.name))
    return findings
