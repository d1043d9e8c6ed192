"""Each host by itself: how fast its cores compute, how fast its memory copies, and what disturbs it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from ...allreduce.sizes import show_rate
from ..attribution import expected_of_peers, shortfalls
from ..bench import Bench
from ..model import LOWER, CheckResult, Expectation, Figure, Finding, Kind, Status
from .probing import probe

TITLE = "cores and memory of each host"
_LOW_CLOCK = 0.7  # of the highest one that the processor has
_STOLEN = 0.05
_ODD = 0.8  # a core is named where it falls short by more than its host


def check(bench: Bench, before: list[CheckResult]) -> CheckResult:
    """All cores of a host are measured at once; where hosts have unlike numbers of them, the least number."""
    began = time.monotonic()
    result = CheckResult("hosts", TITLE, Status.PASSED)
    ranks = min(host.cores for host in bench.hosts)
    names = [host.name for host in bench.hosts]
    cores = probe(bench, result, "cores", ranks=ranks)["hosts"]
    memory = probe(bench, result, "memory", ranks=ranks)
    told = dict(zip(names, cores, strict=True))
    copies = dict(zip(names, map(float, memory["hosts"]), strict=True))
    compute = {name: float(sum(one["rates"])) for name, one in told.items()}
    slowest = {name: float(min(one["rates"])) for name, one in told.items()}
    commands = result.commands
    result.figures = [
        *_figures("host.compute", _in_gops(compute), "Gop/s", bench.tolerance, commands[0]),
        *_figures("host.core", _in_gops(slowest), "Gop/s", bench.tolerance, commands[0]),
        *_figures("host.memory", copies, "B/s", bench.tolerance, commands[1]),
        *(
            Figure("host.jitter", f"host {name}", one["late"], "1", LOWER, command=commands[0])
            for name, one in told.items()
        ),
    ]
    slow = _slow_hosts(compute, slowest, told, bench.tolerance, ranks)
    named = {host for finding in slow for host in finding.hosts}
    poor = [one for one in _slow_memory(copies, bench.tolerance) if one.hosts[0] not in named]
    effects = [one.text for one in _slow_memory(copies, bench.tolerance) if one.hosts[0] in named]
    result.findings = slow + poor
    result.facts = {
        "cores": ranks,
        "hosts": {name: {**one, "memory": copies[name]} for name, one in told.items()},
        "block": memory["block"],
        **({"effects": effects} if effects else {}),
    }
    result.status = Status.FAILED if result.findings else Status.PASSED
    result.seconds = time.monotonic() - began
    return result


def _in_gops(rates: Mapping[str, float]) -> dict[str, float]:
    return {host: value / 1e9 for host, value in rates.items()}


def _figures(
    name: str, values: Mapping[str, float], unit: str, tolerance: float, command: str
) -> list[Figure]:
    expected = expected_of_peers(values)
    return [
        Figure(
            name,
            f"host {host}",
            value,
            unit,
            expected=Expectation(expected[host], "peers", tolerance) if host in expected else None,
            command=command,
        )
        for host, value in values.items()
    ]


def _slow_hosts(
    compute: Mapping[str, float],
    slowest: Mapping[str, float],
    told: Mapping[str, Mapping[str, Any]],
    tolerance: float,
    ranks: int,
) -> list[Finding]:
    as_a_whole = {one.host: one for one in shortfalls(compute, tolerance)}
    by_a_core = {one.host: one for one in shortfalls(slowest, tolerance)}
    found = []
    for host in compute:
        whole, core = as_a_whole.get(host), by_a_core.get(host)
        one, what = whole, f"its {ranks} cores compute" if ranks > 1 else "its core computes"
        if core is not None and (whole is None or core.share < _ODD * whole.share):
            one, what = core, "its slowest core computes"
        if one is None:
            continue
        reasons, remedy = _reasons(told[host])
        text = (
            f"{host}: {what} {one.value / 1e9:.3g} Gop/s, the median of the other hosts is "
            f"{one.expected / 1e9:.3g} Gop/s ({one.share:.0%})"
        )
        found.append(Finding(Kind.SLOW_HOST, f"host {host}", "; ".join([text, *reasons]), remedy, (host,)))
    return found


def _reasons(told: Mapping[str, Any]) -> tuple[Sequence[str], str]:
    """What the kernel says about a slow host, and what to do about the first of it."""
    reasons, remedies = [], []
    if told["quota_stops"]:
        reasons.append(
            f"a quota of processor time stopped it {told['quota_stops']:.0f} times in one measurement"
        )
        remedies.append("raise the limit of the control group that its programs run in (cpu.max, cfs_quota)")
    if told["heat_stops"]:
        reasons.append(f"its processor lowered its clock for heat {told['heat_stops']:.0f} times")
        remedies.append("look at its fans, its inlet temperature and the event log of its management board")
    clock, highest = told["clock"], told["highest_clock"]
    if clock and highest and clock < _LOW_CLOCK * highest:
        reasons.append(f"its clock is at {clock / 1e9:.2f} of {highest / 1e9:.2f} GHz")
        remedies.append("look at the governor (cpupower frequency-info), power limits and cooling")
    if told["temperature"]:
        reasons.append(f"its hottest sensor is at {told['temperature']:.0f} °C")
    if told["stolen"] > _STOLEN:
        reasons.append(f"its hypervisor gave {told['stolen']:.0%} of its time to others")
        remedies.append("give the virtual machine processors of its own")
    elif told["at_work"] < 1 - _STOLEN and not told["quota_stops"]:
        reasons.append(f"its programs had a processor for {told['at_work']:.0%} of the time")
        remedies.append("look for other programs on it (top), such as what an earlier job has left")
    return reasons, (remedies or ["look for other programs on it, its governor, power limits and cooling"])[0]


def _slow_memory(copies: Mapping[str, float], tolerance: float) -> list[Finding]:
    return [
        Finding(
            Kind.SLOW_MEMORY,
            f"host {one.host}",
            f"{one.host} copies {show_rate(one.value)} in its memory, the median of the other hosts is "
            f"{show_rate(one.expected)} ({one.share:.0%})",
            "look for a memory module that is missing, disabled or in the wrong slot (dmidecode -t memory), "
            "and for programs that use its memory",
            (one.host,),
        )
        for one in shortfalls(copies, tolerance)
    ]
