"""The network: each host's link, the paths between hosts, what racks share."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...allreduce.sizes import show_rate
from ..attribution import hosts_at_fault
from ..bench import Bench
from ..kinds import kinds_of
from ..model import EFFECT, HIGHER, LOWER, CheckResult, Expectation, Figure, Finding, Kind, Status, status_of
from ..search import Fault
from . import carriers
from .probing import probe

TITLE = "links between hosts"
NOT_ALONE = "slow beside others, and there were too many such to measure it alone"
_LATENCY_TOLERANCE = 0.8  # a message may take five times as long: paths of unlike length are no fault
_UPLINK = "rack.bandwidth"


@dataclass(frozen=True)
class Culprit:
    kind: Kind
    where: str
    text: str
    remedy: str
    members: tuple[str, ...]  # hosts that it is about
    drain: tuple[str, ...] = ()
    figure: str = "link.bandwidth"

    def finding(self) -> Finding:
        return Finding(self.kind, self.where, self.text, self.remedy, self.drain, self.figure)


def check(bench: Bench, before: list[CheckResult]) -> CheckResult:
    start = time.monotonic()
    result = CheckResult("links", TITLE, Status.PASSED)
    names = [host.name for host in bench.hosts]
    if len(names) < 2:
        result.status, result.reason = Status.SKIPPED, "there is one host, and no link to another one"
        return result
    racks = racks_of(bench)
    kinds = kinds_of({host.name: host.facts for host in bench.hosts})
    survey = probe(bench, result, "pairs", arguments_of(bench))
    command = result.commands[-1]
    usual = _usual_latencies(survey, names, kinds)
    result.figures = figures(survey, names, racks, usual, bench.tolerance, command)
    culprits = slow(survey, names, racks) + _late(survey, names, usual, _of(survey, "host"))
    culprits += one_way(survey, names, bench.tolerance)
    already = hosts_at_fault(before)
    effects = [
        culprit for culprit in culprits if already & set(culprit.members) and culprit.kind is Kind.SLOW_LINK
    ]
    result.findings = [culprit.finding() for culprit in culprits if culprit not in effects]
    result.not_judged = {effect.text: EFFECT for effect in effects}
    result.not_judged |= dict.fromkeys(unjudged(survey, names), NOT_ALONE)
    result.facts = {
        "rounds": survey["rounds"],
        "contended": [[names[a], names[b]] for a, b in survey["contended"]],
        "rates": [[names[a], names[b], forward, back] for a, b, forward, back in survey["rates"]],
    }
    carriers.judge(result, survey, names, bench.tolerance)
    for carrier, number in Counter(result.facts.get("carriers", {}).values()).items():
        bench.say(f"messages of {number} host(s) go by {carrier}")
    result.status = status_of(result.findings)
    result.seconds = time.monotonic() - start
    return result


def racks_of(bench: Bench) -> list[int] | None:
    """Rack of each host; None where they are not known."""
    return [host.rack for host in bench.hosts] if bench.has_racks else None


def arguments_of(bench: Bench) -> list[str]:
    """What the probe `pairs` has to know of the hosts."""
    kinds = kinds_of({host.name: host.facts for host in bench.hosts})
    numbers = {kind: number for number, kind in enumerate(dict.fromkeys(kinds.values()))}
    racks = racks_of(bench)
    arguments = ["--racks", ",".join(map(str, racks))] if racks else []
    if len(numbers) > 1:
        arguments += ["--kinds", ",".join(str(numbers[kinds[host.name]]) for host in bench.hosts)]
    return arguments


def _of(survey: Mapping[str, Any], fault: str) -> set[int]:
    return {verdict["members"][0] for verdict in survey["verdicts"] if verdict["fault"] == fault}


def unjudged(survey: Mapping[str, Any], names: list[str]) -> list[str]:
    """The hosts and racks that were slow beside others and could not be measured alone."""
    titles = []
    for fault, *members in survey["unjudged"]:
        if fault in (Fault.RACK, Fault.RACKS):
            titles.append(" and ".join(f"rack {rack}" for rack in members))
        else:
            titles.append(" and ".join(names[host] for host in members))
    return titles


def _between(a: str, b: str) -> str:
    return f"hosts {a} and {b}"


def _expectation(value: float | None, tolerance: float) -> Expectation | None:
    return Expectation(value, "peers", tolerance) if value else None


def figures(
    survey: Mapping[str, Any],
    names: list[str],
    racks: list[int] | None,
    usual: Mapping[str, float],
    tolerance: float,
    command: str,
) -> list[Figure]:
    figures = []
    if len(names) == 2:
        # nobody can say to which of them it belongs
        figures += [
            Figure("link.bandwidth", _between(*names), min(forward, back), "B/s", command=command)
            for _, _, forward, back in survey["rates"][:1]
            if forward is not None
        ]
        figures += [
            Figure("link.latency", _between(*names), seconds, "s", LOWER, command=command)
            for seconds in list(survey["latency"].values())[:1]
        ]
        return figures
    bad = {
        verdict["members"][0]: verdict["rate"]
        for verdict in survey["verdicts"]
        if verdict["fault"] in ("host", "silent")
    }
    for host, name in enumerate(names):
        value = bad.get(host, survey["best"].get(str(host)))
        if value is not None:
            expected = _expectation(survey["links"].get(str(host)), tolerance)
            figures.append(
                Figure("link.bandwidth", f"host {name}", value, "B/s", expected=expected, command=command)
            )
    for host, seconds in survey["latency"].items():
        figures.append(
            Figure(
                "link.latency",
                f"host {names[int(host)]}",
                seconds,
                "s",
                LOWER,
                _expectation(usual.get(host), _LATENCY_TOLERANCE),
                command,
            )
        )
    if racks and len(set(racks)) > 1:
        figures += _rack_figures(survey, sorted(set(racks)), tolerance, command)
    return figures


def _rack_figures(
    survey: Mapping[str, Any], racks: list[int], tolerance: float, command: str
) -> list[Figure]:
    """Each rack's best bandwidth to another rack."""
    bad = {verdict["members"][0]: verdict for verdict in survey["verdicts"] if verdict["fault"] == "rack"}
    expected = _expectation(survey["uplink"], tolerance)
    figures = []
    for rack in racks:
        carried = [value for a, b, value in survey["across"] if rack in (a, b)]
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


def _usual_latencies(
    survey: Mapping[str, Any], names: list[str], kinds: Mapping[str, str]
) -> dict[str, float]:
    """By host, the median of the other ones of its kind, where there are two."""
    usual = {}
    for host in survey["latency"]:
        others = [
            seconds
            for other, seconds in survey["latency"].items()
            if other != host and kinds[names[int(other)]] == kinds[names[int(host)]]
        ]
        if len(others) > 1:
            usual[host] = statistics.median_low(others)
    return usual


def slow(survey: Mapping[str, Any], names: list[str], racks: list[int] | None) -> list[Culprit]:
    """What the verdicts of the search say."""
    culprits = []
    for verdict in survey["verdicts"]:
        fault, members = Fault(verdict["fault"]), verdict["members"]
        measured = f"{show_rate(verdict['rate'])}; {show_rate(verdict['expected'])} are expected"
        if verdict["expected"]:
            measured += f" ({verdict['rate'] / verdict['expected']:.0%})"
        way = {True: "sends", False: "receives", None: "sends and receives"}[verdict["sending"]]
        if fault in (Fault.HOST, Fault.SILENT):
            (name,) = (names[host] for host in members)
            text = f"{name} {way} {measured}"
            if fault is Fault.SILENT or not verdict["rate"]:
                text = f"{name} did not answer any other host in time"
            remedy = (
                f"look at its network port, cable and switch port (ethtool, ibstat on {name}), "
                "and at the errors that they count"
            )
            culprits.append(Culprit(Kind.SLOW_LINK, f"host {name}", text, remedy, (name,), (name,)))
        elif fault is Fault.PATH:
            a, b = (names[host] for host in members)
            text = f"between {a} and {b}: {measured}; both are good with others"
            if len(names) == 2:
                text = f"between {a} and {b}: {measured}; of two hosts, nobody can say which one it is"
            remedy = f"look at what only these two use: routes, cables of switches (traceroute {b} on {a})"
            culprits.append(Culprit(Kind.SLOW_LINK, _between(a, b), text, remedy, (a, b)))
        elif fault is Fault.RACK:
            (rack,) = members
            hosts = tuple(name for name, number in zip(names, racks or [], strict=True) if number == rack)
            text = f"the uplink of rack {rack} carries {measured}"
            remedy = "look at the cables and ports between its switch and the others"
            culprits.append(Culprit(Kind.SLOW_TIER, f"rack {rack}", text, remedy, hosts, (), _UPLINK))
        else:
            a, b = members
            text = f"between racks {a} and {b}: {measured}; both are good with others"
            remedy = "look at the cables and routes between their switches"
            culprits.append(Culprit(Kind.SLOW_TIER, f"racks {a} and {b}", text, remedy, (), (), _UPLINK))
    return culprits


def one_way(survey: Mapping[str, Any], names: list[str], tolerance: float) -> list[Culprit]:
    """Compare the directions of a single pair: there is no other host to compare with."""
    culprits = []
    for a, b, forward, back in survey["rates"] if len(names) == 2 and not survey["verdicts"] else []:
        if forward is not None and min(forward, back) < (1 - tolerance) * max(forward, back):
            source, target = (names[a], names[b]) if forward < back else (names[b], names[a])
            text = (
                f"from {source} to {target}: {show_rate(min(forward, back))}; "
                f"{show_rate(max(forward, back))} are expected, as in the other direction"
            )
            remedy = f"look at what {source} sends and {target} receives with: ports and cables (ethtool -S)"
            culprits.append(Culprit(Kind.SLOW_LINK, _between(*names), text, remedy, tuple(names)))
            break
    return culprits


def _late(
    survey: Mapping[str, Any], names: list[str], usual: Mapping[str, float], slow: set[int]
) -> list[Culprit]:
    """Hosts whose small messages take several times as long as the others'."""
    culprits = []
    for host, seconds in survey["latency"].items():
        if host not in usual or int(host) in slow or seconds * (1 - _LATENCY_TOLERANCE) <= usual[host]:
            continue
        name = names[int(host)]
        culprits.append(
            Culprit(
                Kind.SLOW_LINK,
                f"host {name}",
                f"a small message of {name} takes {seconds * 1e6:.0f} µs; the median of the other hosts is "
                f"{usual[host] * 1e6:.0f} µs",
                f"look at power saving of its network port and processor on {name} (C-states, interrupt "
                "moderation: ethtool -c)",
                (name,),
                (name,),
                "link.latency",
            )
        )
    return culprits
