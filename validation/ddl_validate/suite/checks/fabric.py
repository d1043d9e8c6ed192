"""Network ports and PCIe links by sysfs: what is down, slower than on the other hosts, or counts errors."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from ...common.own_package import module_variables
from ...common.running import RunFailed
from ..bench import Bench
from ..model import CheckResult, Expectation, Figure, Finding, Kind, Status, status_of
from .asking import ask, program

TITLE = "network ports and PCIe links: state, rate, errors"

UP = ("ACTIVE", "UP")
# It works, and nobody has made it active: without a subnet manager no message gets through.
_WAITING = ("INIT", "ARMED")

_ANY = 0
_SOME = 10  # in a run: what a good link may count now and then
_ALLOWED = {
    # InfiniBand, counters/
    "link_downed": _ANY,
    "link_error_recovery": _ANY,
    "local_link_integrity_errors": _ANY,
    "excessive_buffer_overrun_errors": _ANY,
    "symbol_error": _SOME,
    "port_rcv_errors": _SOME,
    "port_rcv_remote_physical_errors": _SOME,
    "port_rcv_constraint_errors": _SOME,
    "port_xmit_constraint_errors": _SOME,
    "port_xmit_discards": _SOME,
    # RDMA, hw_counters/: what was sent again
    "local_ack_timeout_err": _SOME,
    "packet_seq_err": _SOME,
    "out_of_sequence": _SOME,
    "req_transport_retries_exceeded": _ANY,
    "rx_icrc_encapsulated": _SOME,
    # interfaces
    "carrier_changes": _ANY,
    "rx_errors": _SOME,
    "tx_errors": _SOME,
    "rx_crc_errors": _SOME,
    "rx_frame_errors": _SOME,
    "rx_fifo_errors": _SOME,
    "rx_missed_errors": _SOME,
    "rx_over_errors": _SOME,
    "rx_length_errors": _SOME,
    "tx_carrier_errors": _SOME,
    "tx_fifo_errors": _SOME,
    "tx_aborted_errors": _SOME,
    "tx_window_errors": _SOME,
    "tx_heartbeat_errors": _SOME,
}

_REMEDIES = {
    "fabric.errors": "clean or change the cable or the transceiver, and look at the switch's port",
    "fabric.ports": "look at the cable, the transceiver and the switch's port; ibstat and ethtool say more",
    "fabric.pcie": "reseat the card, and look at the slot's settings in the firmware",
}


def check(bench: Bench, before: list[CheckResult]) -> CheckResult:
    """Everything is read twice. In between, hosts exchange data, so that a bad cable shows."""
    start = time.monotonic()
    result = CheckResult("fabric", TITLE, Status.PASSED)
    first = ask(bench, result, "fabric", (), "fabric-before")
    if len(bench.hosts) > 1:
        traffic = program(bench, "traffic", f"{bench.level.seconds:g}")
        try:
            bench.start("fabric-traffic", traffic, result, ranks=1, variables=module_variables())
        except RunFailed as error:
            # a finding of the checks that exchange data; here it may say why
            result.facts["traffic"] = str(error)
    else:
        time.sleep(bench.level.seconds)
    second = ask(bench, result, "fabric", (), "fabric-after")
    result.findings = findings(first, second)
    result.figures = figures(second, result.commands[-1])
    result.facts["hosts"] = second
    if not any(state["ports"] or state["links"] for state in second.values()):
        result.status, result.reason = (
            Status.SKIPPED,
            "sysfs shows no network port of hardware on these hosts",
        )
    else:
        result.status = status_of(result.findings)
    result.seconds = time.monotonic() - start
    return result


def findings(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[Finding]:
    """By host and kind of fault, at most one; first and second: what probe/fabric.py told."""
    texts: dict[tuple[str, Kind, str], list[str]] = defaultdict(list)
    for host, text in _ports(second):
        texts[host, Kind.SLOW_LINK, "fabric.ports"].append(text)
    for host, text in _errors(first, second):
        texts[host, Kind.SLOW_LINK, "fabric.errors"].append(text)
    for host, kind, text in _narrow(second):
        texts[host, kind, "fabric.pcie"].append(text)
    return [
        Finding(kind, f"host {host}", f"{host}: {'; '.join(faults)}", _REMEDIES[name], (host,), name)
        for (host, kind, name), faults in texts.items()
    ]


def figures(states: Mapping[str, Any], command: str) -> list[Figure]:
    """The rate of every port that is up, against that of most hosts."""
    usual = _usual(states)
    return [
        Figure(
            f"link.rate {port['name']}",
            f"host {host}",
            port["rate"],
            "B/s",
            expected=Expectation(rate, "peers", 0.01)
            if len(states) > 1 and (rate := usual[port["name"]][1])
            else None,
            command=command,
        )
        for host, facts in states.items()
        for port in facts["ports"]
        if port["rate"] and port["state"] in UP
    ]


def _usual(states: Mapping[str, Any]) -> dict[str, tuple[bool, float | None]]:
    """By port, what at least half of the hosts have: is it up, and its rate. Of two that are as frequent, the
    better one: no fault makes a port faster.
    """
    ups: dict[str, int] = Counter()
    rates: dict[str, Counter[float]] = defaultdict(Counter)
    for facts in states.values():
        for port in facts["ports"]:
            if port["state"] in UP:
                ups[port["name"]] += 1
                if port["rate"]:
                    rates[port["name"]][port["rate"]] += 1
            else:
                ups[port["name"]] += 0
    return {
        name: (
            ups[name] * 2 >= len(states),
            max(rates[name], key=lambda rate: (rates[name][rate], rate)) if rates[name] else None,
        )
        for name in ups
    }


def _ports(states: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    usual = _usual(states)
    for host, facts in states.items():
        ports = {port["name"]: port for port in facts["ports"]}
        for name, (up, rate) in usual.items():
            port = ports.get(name)
            if port is None:
                if up:
                    yield host, f"has no {name}, which the other hosts have"
            elif port["state"] in _WAITING:
                yield host, f"{name} is connected, and no subnet manager has made it active ({port['state']})"
            elif port["state"] not in UP:
                if up and len(states) > 1:
                    yield host, f"{name} is {port['state'] or 'in no known state'}, and up on the other hosts"
            elif rate and port["rate"] and port["rate"] < 0.99 * rate:
                yield (
                    host,
                    f"{name} runs at {port['rate'] * 8e-9:g} Gbit/s, and at {rate * 8e-9:g} on other hosts",
                )


def _errors(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for host, facts in second.items():
        earlier = {port["name"]: port["counters"] for port in first.get(host, {}).get("ports", ())}
        for port in facts["ports"]:
            before = earlier.get(port["name"], {})
            grown = {
                name: value - before[name]
                for name, value in port["counters"].items()
                if name in before and name in _ALLOWED and value - before[name] > _ALLOWED[name]
            }
            if grown:
                listed = ", ".join(f"{name} by {number}" for name, number in sorted(grown.items()))
                yield host, f"error counters of {port['name']} grew during the check: {listed}"


def _narrow(states: Mapping[str, Any]) -> Iterable[tuple[str, Kind, str]]:
    for host, facts in states.items():
        for link in facts["links"]:
            gpu = link["kind"] == "gpu"
            kind = Kind.GPU if gpu else Kind.SLOW_LINK
            highest = link["highest_width"]
            if highest and link["width"] < highest:
                yield host, kind, f"{link['name']} has {link['width']} of {highest} PCIe lanes"
            speed = link["highest_speed"]
            # GPUs at rest lower it to save power
            if speed and link["speed"] < speed and not gpu:
                rates = f"{link['speed'] / 1e9:g} of {speed / 1e9:g} GT/s"
                yield host, kind, f"the PCIe link of {link['name']} runs at {rates}"
