"""Which port of each host carried the messages of the check `links`, and how much of the port's rate that is.

All hosts of a cluster may use the wrong network, or only a part of the right one: a comparison of hosts with
each other does not show that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...allreduce.sizes import show_rate
from ..attribution import listed
from ..model import CheckResult, Expectation, Figure, Finding, Kind, hosts_in
from .fabric import UP

SHARE, PORT = "link.share", "link.port"
_LEAST_TOLERANCE = 0.2  # headers and acknowledgements take a part of the rate, too
_FASTER = 2.0  # times: then the other port is the one to use
_ONE_CONNECTION = 10e9 / 8  # bytes a second that one TCP connection, hence one core, surely carries
_OWN = 0.5  # of the bytes that were sent and received: where fewer passed all ports, they went another way
_RAIL = 0.1  # of them: what a rail of several carries at least
_SAME = (
    0.8  # of the bytes of an RDMA port: an interface with as many is on top of it, as of IP over InfiniBand
)


@dataclass(frozen=True)
class Port:
    """kind: of fabric's ports."""

    name: str
    kind: str
    rate: float

    @property
    def described(self) -> str:
        transport = "TCP/IP by " if self.kind == "interface" else "RDMA by "
        return transport + self.known_as

    @property
    def known_as(self) -> str:
        kind = "" if self.kind == "interface" else f"{self.kind}, "
        return f"{self.name} ({kind}{self.rate * 8e-9:g} Gbit/s)"


@dataclass(frozen=True)
class Carrier:
    """used: the port that carried the most. fastest: of those that are up. rdma: the fastest for RDMA."""

    used: Port
    fastest: Port
    rdma: Port | None

    def unused(self, rate: float) -> Port | None:
        """The port to use instead for one that reaches this share of its rate."""
        if self.fastest.rate >= _FASTER * self.used.rate:
            return self.fastest
        slow_tcp = self.used.kind == "interface" and rate < 1 - _LEAST_TOLERANCE
        return self.rdma if slow_tcp and self.rdma and self.rdma.rate >= self.used.rate else None


def carrier_of(traffic: Mapping[str, Any]) -> Carrier | None:
    """traffic: of a host, as the probe `pairs` tells it. None where no port of hardware has carried it."""
    up = [port for port in traffic["ports"] if port["state"] in UP]
    most = max(up, key=lambda port: int(port["bytes"]), default=None)
    moved = traffic["moved"]
    if most is None or not moved or most["bytes"] < _RAIL * moved:
        return None
    if sum(port["bytes"] for port in up) < _OWN * moved or not most["rate"]:
        return None
    rate = most["rate"]
    for port in up:
        if port["kind"] == "interface" and port["bytes"] >= _SAME * most["bytes"]:
            most, rate = port, port["rate"] or rate
    rated = [Port(port["name"], port["kind"], port["rate"]) for port in up if port["rate"]]
    return Carrier(
        Port(most["name"], most["kind"], rate),
        max(rated, key=lambda port: port.rate),
        max((port for port in rated if port.kind != "interface"), key=lambda port: port.rate, default=None),
    )


def judge(result: CheckResult, survey: Mapping[str, Any], names: Sequence[str], tolerance: float) -> None:
    """Add to the result of `links` which port the messages went by, its share of the rate, what is wrong."""
    if len(set(survey["machines"])) < len(names):
        result.not_judged[SHARE] = "hosts share a machine, and no port carries what they exchange"
        return
    carriers = {
        names[int(host)]: carrier
        for host, traffic in survey["traffic"].items()
        if (carrier := carrier_of(traffic))
    }
    result.facts["carriers"] = {host: carrier.used.described for host, carrier in carriers.items()}
    unknown = [name for name in names if name not in carriers]
    if unknown:
        why = "no port of hardware whose rate is known counted the messages of"
        result.not_judged[SHARE] = f"{why} {listed(unknown)}"
    groups: dict[Carrier, list[Figure]] = defaultdict(list)
    for figure in [figure for figure in result.figures if figure.name == "link.bandwidth"]:
        ends = tuple(carriers[host] for host in hosts_in(figure.where) if host in carriers)
        if len(ends) < len(hosts_in(figure.where)):
            continue
        rate = min(end.used.rate for end in ends)
        expected = Expectation(1.0, "hardware", max(tolerance, _LEAST_TOLERANCE))
        share = Figure(
            SHARE, figure.where, figure.value / rate, "1", expected=expected, command=figure.command
        )
        result.figures.append(share)
        slowest = min(ends, key=lambda end: end.used.rate)
        # a link that falls short of the other hosts' is named for that
        if not figure.low and (share.low or slowest.fastest.rate >= _FASTER * slowest.used.rate):
            groups[slowest].append(figure)
    result.findings += [_finding(carrier, figures) for carrier, figures in groups.items()]


def _finding(carrier: Carrier, figures: Sequence[Figure]) -> Finding:
    used = carrier.used
    worst = min(figures, key=lambda figure: figure.value)
    unused = carrier.unused(worst.value / used.rate)
    where = worst.where if len(figures) == 1 else "cluster"
    text = (
        f"{listed([figure.where for figure in figures])}: messages go by {used.described} at "
        f"{show_rate(worst.value)}, {worst.value / used.rate:.0%} of its rate"
    )
    if unused:
        text += f"; {unused.known_as} is up, too, and that is {worst.value / unused.rate:.1%} of its rate"
        remedy = (
            f"use {unused.name}: name its interface (--ddlrun '-interface NAME'), and look at what UCX "
            "finds (ucx_info -d, ddlrun -doctor)"
        )
        return Finding(Kind.SLOW_LINK, where, text, remedy, figure=PORT)
    if used.kind == "interface":
        remedy = (
            "look at the MTU, at several connections of a pair of ranks (btl_tcp_links), and at what else "
            "uses the network"
        )
    else:
        remedy = "look at the PCIe link and the NUMA node of the card, and at ib_write_bw between two hosts"
    warning = used.kind == "interface" and used.rate > _ONE_CONNECTION
    return Finding(Kind.SLOW_LINK, where, text, remedy, figure=SHARE, warning=warning)
