"""Each host by itself: how fast its cores compute, how fast its memory copies, and what disturbs it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from ...allreduce.sizes import show_rate
from ..attribution import Shortfall, below_hardware, expected_of_peers, listed, shortfalls
from ..bench import Bench
from ..kinds import kinds_of
from ..model import EFFECT, LOWER, CheckResult, Expectation, Figure, Finding, Kind, Status, status_of
from .probing import probe

TITLE = "cores and memory of each host"
_LOW_CLOCK = 0.7  # of the highest one that the processor has
_STOLEN = 0.05
_FLOOR = 0.25  # of what the hardware can do: half is usual, and turbo clocks, vectors and channels differ
_UNKNOWN = {
    "host.compute.share": "the kernel tells no clock of the cores of",
    "host.memory.share": "no driver (EDAC) tells ordinary users the memory channels of",
}
_ODD = 0.8  # a core is named where it falls short by more than its host


def check(bench: Bench, before: list[CheckResult]) -> CheckResult:
    """All cores of a host are measured at once; where hosts have unlike numbers of them, the least number."""
    start = time.monotonic()
    result = CheckResult("hosts", TITLE, Status.PASSED)
    ranks = min(host.cores for host in bench.hosts)
    names = [host.name for host in bench.hosts]
    cores = probe(bench, result, "cores", ranks=ranks)["hosts"]
    memory = probe(bench, result, "memory", ranks=ranks)
    by_host = dict(zip(names, cores, strict=True))
    copies = dict(zip(names, map(float, memory["hosts"]), strict=True))
    compute = {name: float(sum(report["rates"])) for name, report in by_host.items()}
    slowest = {name: float(min(report["rates"])) for name, report in by_host.items()}
    commands = result.commands
    kinds = kinds_of({host.name: host.facts for host in bench.hosts})
    result.figures = [
        *_figures("host.compute", _in_gops(compute), "Gop/s", bench.tolerance, commands[0], kinds),
        *_figures("host.core", _in_gops(slowest), "Gop/s", bench.tolerance, commands[0], kinds),
        *_figures("host.memory", copies, "B/s", bench.tolerance, commands[1], kinds),
        *(
            Figure("host.jitter", f"host {name}", report["late"], "1", LOWER, command=commands[0])
            for name, report in by_host.items()
        ),
    ]
    shares = _shares(by_host, dict(zip(names, memory["peaks"], strict=True)), copies, ranks, commands)
    result.figures += shares
    slow = _slow_hosts(compute, slowest, by_host, bench.tolerance, ranks, kinds)
    named = {finding.where for finding in slow}
    memory_findings = [_slow_memory(shortfall) for shortfall in shortfalls(copies, bench.tolerance, kinds)]
    result.not_judged = {finding.text: EFFECT for finding in memory_findings if finding.where in named}
    result.findings = slow + [finding for finding in memory_findings if finding.where not in named]
    result.findings += _below_hardware(shares, {finding.where for finding in result.findings})
    for name, why in _UNKNOWN.items():
        judged = {figure.where for figure in shares if figure.name == name}
        unknown = [host for host in names if f"host {host}" not in judged]
        if unknown:
            result.not_judged[name] = f"{why} {listed(unknown)}"
    result.facts = {
        "cores": ranks,
        "hosts": {name: {**report, "memory": copies[name]} for name, report in by_host.items()},
        "block": memory["block"],
    }
    result.status = status_of(result.findings)
    result.seconds = time.monotonic() - start
    return result


def _shares(
    reports: Mapping[str, Mapping[str, Any]],
    peaks: Mapping[str, float | None],
    copies: Mapping[str, float],
    ranks: int,
    commands: Sequence[str],
) -> list[Figure]:
    """What cores and memory do of what they can: what other programs take of the cores is judged elsewhere. A
    copy reads and writes.
    """
    expected = Expectation(1.0, "hardware", 1 - _FLOOR)
    shares = []
    for name, report in reports.items():
        if report["peak"]:
            can = report["peak"] * ranks * max(report["at_work"], 0.01)
            shares.append(("host.compute.share", name, sum(report["rates"]) / can, commands[0]))
        if peak := peaks[name]:
            shares.append(("host.memory.share", name, copies[name] / (peak / 2), commands[1]))
    return [
        Figure(figure, f"host {name}", share, "1", expected=expected, command=command)
        for figure, name, share, command in shares
    ]


def _below_hardware(shares: Sequence[Figure], named: set[str]) -> list[Finding]:
    compute = [figure for figure in shares if figure.name == "host.compute.share"]
    memory = [figure for figure in shares if figure.name == "host.memory.share"]
    return [
        *below_hardware(
            compute,
            Kind.SLOW_HOST,
            "products of matrices reach",
            "look at the governor and power limits (cpupower frequency-info), the firmware's power profile, "
            "and at what numpy computes with (numpy.show_config())",
            named,
        ),
        *below_hardware(
            memory,
            Kind.SLOW_MEMORY,
            "copies in memory reach",
            "look at the memory's speed and NUMA settings in the firmware (dmidecode -t memory)",
            named,
        ),
    ]


def _in_gops(rates: Mapping[str, float]) -> dict[str, float]:
    return {host: value / 1e9 for host, value in rates.items()}


def _figures(
    name: str,
    values: Mapping[str, float],
    unit: str,
    tolerance: float,
    command: str,
    kinds: Mapping[str, str],
) -> list[Figure]:
    expectations = expected_of_peers(values, tolerance, kinds)
    return [
        Figure(
            name,
            f"host {host}",
            value,
            unit,
            expected=expectations.get(host),
            command=command,
        )
        for host, value in values.items()
    ]


def _slow_hosts(
    compute: Mapping[str, float],
    slowest: Mapping[str, float],
    reports: Mapping[str, Mapping[str, Any]],
    tolerance: float,
    ranks: int,
    kinds: Mapping[str, str],
) -> list[Finding]:
    as_a_whole = {shortfall.host: shortfall for shortfall in shortfalls(compute, tolerance, kinds)}
    by_a_core = {shortfall.host: shortfall for shortfall in shortfalls(slowest, tolerance, kinds)}
    findings = []
    for host in compute:
        whole, core = as_a_whole.get(host), by_a_core.get(host)
        shortfall, subject = whole, f"its {ranks} cores compute" if ranks > 1 else "its core computes"
        if core is not None and (whole is None or core.share < _ODD * whole.share):
            shortfall, subject = core, "its slowest core computes"
        if shortfall is None:
            continue
        reasons, remedy = reasons_of(reports[host])
        text = (
            f"{host}: {subject} {shortfall.value / 1e9:.3g} Gop/s, the median of the other hosts is "
            f"{shortfall.expected / 1e9:.3g} Gop/s ({shortfall.share:.0%})"
        )
        findings.append(
            Finding(
                Kind.SLOW_HOST,
                f"host {host}",
                "; ".join([text, *reasons]),
                remedy,
                shortfall.hosts,
                "host.core" if shortfall is core else "host.compute",
            )
        )
    return findings


def reasons_of(report: Mapping[str, Any]) -> tuple[Sequence[str], str]:
    """What the kernel says about a slow host, and what to do about the first of it."""
    reasons, remedies = [], []
    if report["quota_stops"]:
        reasons.append(
            f"a quota of processor time stopped it {report['quota_stops']:.0f} times in one measurement"
        )
        remedies.append("raise the limit of the control group that its programs run in (cpu.max, cfs_quota)")
    if report["heat_stops"]:
        reasons.append(f"its processor lowered its clock for heat {report['heat_stops']:.0f} times")
        remedies.append("look at its fans, its inlet temperature and the event log of its management board")
    clock, highest = report["clock"], report["highest_clock"]
    if clock and highest and clock < _LOW_CLOCK * highest:
        reasons.append(f"its clock is at {clock / 1e9:.2f} of {highest / 1e9:.2f} GHz")
        remedies.append("look at the governor (cpupower frequency-info), power limits and cooling")
    if report["temperature"]:
        reasons.append(f"its hottest sensor is at {report['temperature']:.0f} °C")
    if report["stolen"] > _STOLEN:
        reasons.append(f"its hypervisor gave {report['stolen']:.0%} of its time to others")
        remedies.append("give the virtual machine processors of its own")
    elif report["at_work"] < 1 - _STOLEN and not report["quota_stops"]:
        reasons.append(f"its programs had a processor for {report['at_work']:.0%} of the time")
        remedies.append("look for other programs on it (top), such as what an earlier job has left")
    return reasons, (remedies or ["look for other programs on it, its governor, power limits and cooling"])[0]


def _slow_memory(slow: Shortfall) -> Finding:
    return Finding(
        Kind.SLOW_MEMORY,
        f"host {slow.host}",
        f"{slow.host} copies {show_rate(slow.value)} in its memory, the median of the other hosts is "
        f"{show_rate(slow.expected)} ({slow.share:.0%})",
        "look for a memory module that is missing, disabled or in the wrong slot (dmidecode -t memory), "
        "and for programs that use its memory",
        slow.hosts,
        "host.memory",
    )
