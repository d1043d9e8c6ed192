"""The network: each host's link, the paths between hosts, what racks share."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...allreduce.sizes import show_rate
from ..attribution import hosts_at_fault
from ..bench import Bench
from ..model import HIGHER, LOWER, CheckResult, Expectation, Figure, Finding, Kind, Status
from ..search import Fault
from .probing import probe

TITLE = "links between hosts"
_LATENCY_TOLERANCE = 0.8  # a message may take five times as long: paths of unlike length are no fault


@dataclass(frozen=True)
class _Culprit:
    kind: Kind
    where: str
    text: str
    remedy: str
    members: tuple[str, ...]  # hosts that it is about
    drain: tuple[str, ...] = ()

    def finding(self) -> Finding:
        return Finding(self.kind, self.where, self.text, self.remedy, self.drain)


def check(bench: Bench, before: list[CheckResult]) -> CheckResult:
    began = time.monotonic()
    result = CheckResult("links", TITLE, Status.PASSED)
    names = [host.name for host in bench.hosts]
    if len(names) < 2:
        result.status, result.reason = Status.SKIPPED, "there is one host, and no link to another one"
        return result
    racks = [host.rack for host in bench.hosts] if bench.has_racks else None
    words = ["--racks", ",".join(map(str, racks))] if racks else []
    told = probe(bench, result, "pairs", words)
    command = result.commands[-1]
    result.figures = _figures(told, names, racks, bench.tolerance, command)
    culprits = _slow(told, names, racks) + _late(told, names, _of(told, "host"))
    culprits += _one_way(told, names, bench.tolerance)
    already = hosts_at_fault(before)
    effects = [one for one in culprits if already & set(one.members) and one.kind is Kind.SLOW_LINK]
    result.findings = [one.finding() for one in culprits if one not in effects]
    result.facts = {
        "rounds": told["rounds"],
        "contended": [[names[a], names[b]] for a, b in told["contended"]],
        "rates": [[names[a], names[b], there, back] for a, b, there, back in told["rates"]],
        **({"effects": [one.text for one in effects]} if effects else {}),
    }
    result.status = Status.FAILED if result.findings else Status.PASSED
    result.seconds = time.monotonic() - began
    return result


def _of(told: Mapping[str, Any], fault: str) -> set[int]:
    return {one["members"][0] for one in told["verdicts"] if one["fault"] == fault}


def _between(a: str, b: str) -> str:
    return f"hosts {a} and {b}"


def _expectation(value: float | None, tolerance: float) -> Expectation | None:
    return Expectation(value, "peers", tolerance) if value else None


def _figures(
    told: Mapping[str, Any], names: list[str], racks: list[int] | None, tolerance: float, command: str
) -> list[Figure]:
    link = _expectation(told["link"], tolerance)
    figures = []
    if len(names) == 2:
        # nobody can say to which of them it belongs
        figures += [
            Figure("link.bandwidth", _between(*names), min(there, back), "B/s", command=command)
            for _, _, there, back in told["rates"][:1]
            if there is not None
        ]
        figures += [
            Figure("link.latency", _between(*names), seconds, "s", LOWER, command=command)
            for seconds in list(told["latency"].values())[:1]
        ]
        return figures
    bad = {one["members"][0]: one["rate"] for one in told["verdicts"] if one["fault"] in ("host", "silent")}
    for host, name in enumerate(names):
        value = bad.get(host, told["best"].get(str(host)))
        if value is not None:
            figures.append(
                Figure("link.bandwidth", f"host {name}", value, "B/s", expected=link, command=command)
            )
    for host, seconds in told["latency"].items():
        usual = _usual_latency(told, host)
        figures.append(
            Figure(
                "link.latency",
                f"host {names[int(host)]}",
                seconds,
                "s",
                LOWER,
                _expectation(usual, _LATENCY_TOLERANCE),
                command,
            )
        )
    if racks and len(set(racks)) > 1:
        figures += _rack_figures(told, sorted(set(racks)), tolerance, command)
    return figures


def _rack_figures(told: Mapping[str, Any], racks: list[int], tolerance: float, command: str) -> list[Figure]:
    """Of each rack, what it carried with the rack with which it carried most."""
    bad = {one["members"][0]: one for one in told["verdicts"] if one["fault"] == "rack"}
    expected = _expectation(told["uplink"], tolerance)
    figures = []
    for rack in racks:
        carried = [value for a, b, value in told["across"] if rack in (a, b)]
        if rack in bad:
            expectation = _expectation(bad[rack]["expected"], tolerance)
            figures.append(
                Figure(
                    "rack.bandwidth", f"rack {rack}", bad[rack]["rate"], "B/s", HIGHER, expectation, command
                )
            )
        elif carried:
            # a small rack cannot load its uplink: what is less than expected is no shortfall
            judged = expected if expected and max(carried) >= expected.value * (1 - tolerance) else None
            figures.append(
                Figure("rack.bandwidth", f"rack {rack}", max(carried), "B/s", HIGHER, judged, command)
            )
    return figures


def _usual_latency(told: Mapping[str, Any], host: str) -> float | None:
    others = [seconds for other, seconds in told["latency"].items() if other != host]
    return statistics.median_low(others) if len(others) > 1 else None


def _slow(told: Mapping[str, Any], names: list[str], racks: list[int] | None) -> list[_Culprit]:
    found = []
    for one in told["verdicts"]:
        fault, members = Fault(one["fault"]), one["members"]
        measured = f"{show_rate(one['rate'])}; {show_rate(one['expected'])} are expected"
        if one["expected"]:
            measured += f" ({one['rate'] / one['expected']:.0%})"
        way = {True: "sends", False: "receives", None: "sends and receives"}[one["sending"]]
        if fault in (Fault.HOST, Fault.SILENT):
            (name,) = (names[host] for host in members)
            text = f"{name} {way} {measured}"
            if fault is Fault.SILENT or not one["rate"]:
                text = f"{name} did not answer any other host in time"
            remedy = (
                f"look at its network port, cable and switch port (ethtool, ibstat on {name}), "
                "and at the errors that they count"
            )
            found.append(_Culprit(Kind.SLOW_LINK, f"host {name}", text, remedy, (name,), (name,)))
        elif fault is Fault.PATH:
            a, b = (names[host] for host in members)
            text = f"between {a} and {b}: {measured}; both are good with others"
            if len(names) == 2:
                text = f"between {a} and {b}: {measured}; of two hosts, nobody can say which one it is"
            remedy = f"look at what only these two use: routes, cables of switches (traceroute {b} on {a})"
            found.append(_Culprit(Kind.SLOW_LINK, _between(a, b), text, remedy, (a, b)))
        elif fault is Fault.RACK:
            (rack,) = members
            hosts = tuple(name for name, own in zip(names, racks or [], strict=True) if own == rack)
            text = f"the uplink of rack {rack} carries {measured}"
            remedy = "look at the cables and ports between its switch and the others"
            found.append(_Culprit(Kind.SLOW_TIER, f"rack {rack}", text, remedy, hosts))
        else:
            a, b = members
            text = f"between racks {a} and {b}: {measured}; both are good with others"
            remedy = "look at the cables and routes between their switches"
            found.append(_Culprit(Kind.SLOW_TIER, f"racks {a} and {b}", text, remedy, ()))
    return found


def _one_way(told: Mapping[str, Any], names: list[str], tolerance: float) -> list[_Culprit]:
    """Of two hosts nobody is there to compare with, but one direction shows what the other one should do."""
    found = []
    for a, b, there, back in told["rates"] if len(names) == 2 and not told["verdicts"] else []:
        if there is not None and min(there, back) < (1 - tolerance) * max(there, back):
            source, target = (names[a], names[b]) if there < back else (names[b], names[a])
            text = (
                f"from {source} to {target}: {show_rate(min(there, back))}; "
                f"{show_rate(max(there, back))} are expected, as in the other direction"
            )
            remedy = f"look at what {source} sends and {target} receives with: ports and cables (ethtool -S)"
            found.append(_Culprit(Kind.SLOW_LINK, _between(*names), text, remedy, tuple(names)))
            break
    return found


def _late(told: Mapping[str, Any], names: list[str], slow: set[int]) -> list[_Culprit]:
    """Hosts whose small messages take several times as long as the others'."""
    found = []
    for host, seconds in told["latency"].items():
        usual = _usual_latency(told, host)
        if usual is None or int(host) in slow or seconds * (1 - _LATENCY_TOLERANCE) <= usual:
            continue
        name = names[int(host)]
        found.append(
            _Culprit(
                Kind.SLOW_LINK,
                f"host {name}",
                f"a small message of {name} takes {seconds * 1e6:.0f} µs; the median of the other hosts is "
                f"{usual * 1e6:.0f} µs",
                f"look at power saving of its network port and processor on {name} (C-states, interrupt "
                "moderation: ethtool -c)",
                (name,),
                (name,),
            )
        )
    return found
