"""Rails: network ports of one rate that every host has, each measured by itself.

MPI spreads messages over all of them, so a rail that is slow, or that nobody uses, hides in the sum.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...allreduce.sizes import show_rate
from ...common.running import RunFailed
from ..attribution import listed
from ..bench import Bench
from ..errors import ValidateError
from ..model import CheckResult, Expectation, Figure, Finding, Kind, Status, status_of
from . import links
from .asking import ask
from .carriers import carrier_of
from .fabric import UP
from .probing import probe

TITLE = "each of several network ports by itself"
FIGURE = "rail.bandwidth"
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(:\d+)?")
_RDMA = re.compile(r"(.+) port (\d+)")  # as the probe `fabric` names a port


def check(bench: Bench, before: list[CheckResult]) -> CheckResult:
    start = time.monotonic()
    result = CheckResult("rails", TITLE, Status.PASSED)
    if len(bench.hosts) < 2:
        result.status, result.reason = Status.SKIPPED, "there is one host, and no link to another one"
        return result
    for rail in bench.rails:
        if not _NAME.fullmatch(rail):
            raise ValidateError(f"--rails {rail}: write interfaces such as eth0, or ports such as mlx5_0:1")
    rails = bench.rails or common(ask(bench, result, "fabric", (), "rails-ports"))
    if len(rails) < 2:
        reason = "the hosts do not have two ports of one rate in common (--rails names others)"
        result.status, result.reason = Status.SKIPPED, reason
        return result
    surveys = {rail: survey for rail in rails if (survey := _survey(bench, result, rail)) is not None}
    names = [host.name for host in bench.hosts]
    for rail, survey in surveys.items():
        result.figures += _figures(survey, names, rails.index(rail), bench.tolerance, result)
        culprits = links.slow(survey, names, links.racks_of(bench))
        culprits += links.one_way(survey, names, bench.tolerance)
        result.not_judged |= {
            f"rail {rail}: {title}": links.NOT_ALONE for title in links.unjudged(survey, names)
        }
        result.findings += [
            replace(culprit.finding(), text=f"rail {rail}: {culprit.text}", figure=FIGURE)
            for culprit in culprits
        ]
    result.findings += unlike(_usual(surveys), bench.tolerance)
    result.facts = {"rails": list(rails)}
    if not surveys:
        result.status, result.reason = Status.SKIPPED, f"nothing could be measured by {listed(rails)}"
    else:
        result.status = status_of(result.findings)
    result.seconds = time.monotonic() - start
    return result


def common(states: Mapping[str, Any]) -> tuple[str, ...]:
    """The ports that every host has up, at the fastest rate that it has: for RDMA where all hosts have some,
    else interfaces. states: of each host, what the probe `fabric` told.
    """
    for rdma in (True, False):
        of_hosts = []
        for state in states.values():
            rated = [
                port
                for port in state["ports"]
                if port["state"] in UP and port["rate"] and (port["kind"] != "interface") == rdma
            ]
            fastest = max((port["rate"] for port in rated), default=None)
            of_hosts.append({_rail(port["name"]) for port in rated if port["rate"] == fastest})
        if all(of_hosts):
            return tuple(sorted(set.intersection(*of_hosts)))
    return ()


def _rail(port: str) -> str:
    """mlx5_0:1 of `mlx5_0 port 1`, as UCX names it; an interface is itself."""
    match = _RDMA.fullmatch(port)
    return f"{match[1]}:{match[2]}" if match else port


def _survey(bench: Bench, result: CheckResult, rail: str) -> dict[str, Any] | None:
    """What the probe `pairs` found by this rail alone; None, with the reason among what is not judged, where
    MPI did not use it.
    """
    rdma = ":" in rail
    variables = {"UCX_NET_DEVICES": rail, "OMPI_MCA_pml": "ucx"} if rdma else {"OMPI_MCA_pml": "ob1"}
    options = () if rdma else ("-interface", rail)
    log = "probe-pairs-" + rail.replace(":", "-")
    try:
        survey = probe(
            bench, result, "pairs", links.arguments_of(bench), log=log, variables=variables, options=options
        )
    except (RunFailed, ValidateError) as error:
        why = error.line if isinstance(error, RunFailed) else str(error)
        result.not_judged[f"rail {rail}"] = why
        return None
    used = {
        _rail(carrier.used.name) for traffic in survey["traffic"].values() if (carrier := carrier_of(traffic))
    }
    if used - {rail}:
        result.not_judged[f"rail {rail}"] = f"messages went by {listed(sorted(used))}"
        return None
    return survey


def _figures(
    survey: Mapping[str, Any], names: list[str], number: int, tolerance: float, result: CheckResult
) -> list[Figure]:
    figures = links.figures(survey, names, None, {}, tolerance, result.commands[-1])
    return [
        replace(figure, name=FIGURE, scale={"rail": number})
        for figure in figures
        if figure.name == "link.bandwidth"
    ]


def _usual(surveys: Mapping[str, Any]) -> dict[str, float]:
    """By rail, the median of the hosts' best rates."""
    return {
        rail: statistics.median(survey["best"].values()) for rail, survey in surveys.items() if survey["best"]
    }


def unlike(usual: Mapping[str, float], tolerance: float) -> list[Finding]:
    """Rails that are slow on most hosts. usual: by rail, in bytes a second."""
    best = max(usual.values(), default=0.0)
    expected = Expectation(best, "peers", tolerance)
    findings = []
    for rail, rate in usual.items():
        if Figure(FIGURE, "cluster", rate, "B/s", expected=expected).low:
            text = f"rail {rail} carries {show_rate(rate)} between hosts, and another one {show_rate(best)}"
            remedy = "look at the switches and the routes of this rail, and at the MTU of its ports"
            findings.append(Finding(Kind.SLOW_TIER, "cluster", text, remedy, figure=FIGURE))
    return findings
