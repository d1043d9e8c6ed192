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
_ONE_CONNECTION = 25e9 / 8  # bytes a second that one TCP connection, hence one core, is expected to carry
_OWN = 0.5  # of the bytes that were sent and received: fewer have passed a port that carried something else


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
    """used: the port that carried the most. fastest: of those that are up."""

    used: Port
    fastest: Port


def carrier_of(traffic: Mapping[str, Any]) -> Carrier | None:
    """traffic: of a host, as the probe `pairs` tells it. None where no port of hardware has carried it."""
    up = [port for port in traffic["ports"] if port["state"] in UP and port["rate"]]
    most = max(up, key=lambda port: int(port["bytes"]), default=None)
    if most is None or not traffic["moved"] or most["bytes"] < _OWN * traffic["moved"]:
        return None
    fastest = max(up, key=lambda port: float(port["rate"]))
    used, other = (Port(port["name"], port["kind"], port["rate"]) for port in (most, fastest))
    return Carrier(used, other)


def judge(result: CheckResult, survey: Mapping[str, Any], names: Sequence[str], tolerance: float) -> None:
    """Add to the result of `links` each link's share of its port's rate, and what is wrong with it."""
    if len(set(survey["machines"])) < len(names):
        result.not_judged[SHARE] = "hosts share a machine, and no port carries what they exchange"
        return
    carriers = {
        names[int(host)]: carrier
        for host, traffic in survey["traffic"].items()
        if (carrier := carrier_of(traffic))
    }
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
        unused = slowest.fastest.rate >= _FASTER * slowest.used.rate
        # a link that falls short of the other hosts' is named for that
        if not figure.low and (unused or share.low):
            groups[slowest].append(figure)
    result.findings += [_finding(carrier, figures) for carrier, figures in groups.items()]


def _finding(carrier: Carrier, figures: Sequence[Figure]) -> Finding:
    used, fastest = carrier.used, carrier.fastest
    worst = min(figures, key=lambda figure: figure.value)
    where = worst.where if len(figures) == 1 else "cluster"
    text = (
        f"{listed([figure.where for figure in figures])}: messages go by {used.described} at "
        f"{show_rate(worst.value)}, {worst.value / used.rate:.0%} of its rate"
    )
    if fastest.rate >= _FASTER * used.rate:
        text += f"; {fastest.known_as} is up, too, and that is {worst.value / fastest.rate:.1%} of its rate"
        remedy = (
            f"use {fastest.name}: name its interface (--ddlrun '-interface NAME'), and look at what UCX "
            "finds (ucx_info -d, ddlrun -doctor)"
        )
        return Finding(Kind.SLOW_LINK, where, text, remedy, figure=PORT)
    if used.kind == "interface":
        remedy = (
            "look for a faster transport (RDMA: ucx_info -d, ibv_devices), large frames (MTU) and several "
            "connections of a pair of ranks (btl_tcp_links)"
        )
    else:
        remedy = "look at the PCIe link and the NUMA node of the card, and at ib_write_bw between two hosts"
    warning = used.kind == "interface" and used.rate > _ONE_CONNECTION
    return Finding(Kind.SLOW_LINK, where, text, remedy, figure=SHARE, warning=warning)
