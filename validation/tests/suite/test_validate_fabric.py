"""Ports and PCIe links: described hosts with one fault each, and what sysfs says of this machine."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from program_runner import ROOT, Environment

from ddl_validate.common.mpi import MPI_AS_ROOT
from ddl_validate.suite.bench import Bench, Host
from ddl_validate.suite.checks import fabric
from ddl_validate.suite.levels import LEVELS
from ddl_validate.suite.model import Kind, Status
from ddl_validate.suite.probe import lines

_COUNTERS = ("symbol_error", "link_downed", "port_rcv_errors", "port_rcv_data", "port_xmit_wait")


class Tree:
    """A host's sysfs: an InfiniBand card, an interface, a GPU, a bridge that is no hardware."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.card = root / "devices/pci0000:00/0000:00:01.0/0000:3b:00.0"
        self.gpu = root / "devices/pci0000:00/0000:00:02.0/0000:af:00.0"
        self.port = root / "class/infiniband/mlx5_0/ports/1"
        self.interface = root / "class/net/ens1"
        for device, lanes in ((self.card, 16), (self.gpu, 16)):
            self.write(device, current_link_speed="16.0 GT/s PCIe", current_link_width=lanes)
            self.write(device, max_link_speed="32.0 GT/s PCIe", max_link_width=lanes)
            # the slot is slower than the card, and that is no fault
            self.write(device.parent, max_link_speed="16.0 GT/s PCIe", max_link_width=lanes)
        self.write(self.gpu, vendor="0x10de", **{"class": "0x030200"})
        pci = root / "bus/pci/devices"
        pci.mkdir(parents=True)
        (pci / self.gpu.name).symlink_to(self.gpu)
        self.write(self.port, state="4: ACTIVE", rate="200 Gb/sec (4X HDR)", link_layer="InfiniBand")
        self.write(self.port / "counters", **dict.fromkeys(_COUNTERS, 7))
        self.write(self.port / "hw_counters", out_of_sequence=3, np_cnp_sent=5)
        self.write(self.port / "hw_counters", req_transport_retries_exceeded=1)
        (root / "class/infiniband/mlx5_0/device").symlink_to(self.card)
        self.write(self.interface, operstate="up", speed=25000, carrier_changes=2)
        self.write(self.interface / "statistics", rx_errors=0, rx_crc_errors=0, rx_bytes=1, rx_dropped=4)
        (self.interface / "device").symlink_to(self.card)
        self.write(root / "class/net/docker0", operstate="down", speed=-1)

    def write(self, folder: Path, **values: str | int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in values.items():
            (folder / name).write_text(f"{value}\n")

    def facts(self) -> Any:
        """By the program, as a host is asked."""
        words = [sys.executable, "-m", "ddl_validate.suite.probe.fabric", "--sys", str(self.root)]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=30, check=True)
        (told,) = lines.heard(done.stdout).values()
        return told


@pytest.fixture
def three(tmp_path: Path) -> dict[str, Tree]:
    return {name: Tree(tmp_path / name) for name in ("h1", "h2", "h3")}


def read(hosts: dict[str, Tree]) -> dict[str, Any]:
    return {name: tree.facts() for name, tree in hosts.items()}


def test_what_is_read(three: dict[str, Tree]) -> None:
    told = three["h1"].facts()
    port, interface = told["ports"]
    assert (port["bytes"], interface["bytes"]) == (4 * 7, 1)
    assert (port["name"], port["state"], port["rate"]) == ("mlx5_0 port 1", "ACTIVE", 25e9)
    assert port["counters"]["symbol_error"] == 7 and port["counters"]["out_of_sequence"] == 3
    assert (interface["name"], interface["state"], interface["rate"]) == ("ens1", "UP", 3.125e9)
    assert interface["counters"] == {"carrier_changes": 2, "rx_crc_errors": 0, "rx_errors": 0}
    card, gpu = told["links"]
    assert card["name"] == "mlx5_0 (0000:3b:00.0)" and gpu["name"] == "GPU (0000:af:00.0)"
    assert (card["speed"], card["highest_speed"]) == (16e9, 16e9)
    json.dumps(told)


def test_good_hosts_have_no_finding(three: dict[str, Tree]) -> None:
    first = read(three)
    for tree in three.values():
        # traffic, congestion, and what a good cable counts now and then
        tree.write(tree.port / "counters", port_rcv_data=10**12, port_xmit_wait=10**6, symbol_error=9)
        # a GPU at rest
        tree.write(tree.gpu, current_link_speed="2.5 GT/s PCIe")
    second = read(three)
    assert fabric.findings(first, second) == []
    made = fabric.figures(second, "")
    assert len(made) == 6 and not any(figure.low for figure in made)
    assert {figure.name for figure in made} == {"link.rate mlx5_0 port 1", "link.rate ens1"}


# name: (what happens to h2 between the two readings, kind, words of the finding)
FAULTS: dict[str, tuple[Callable[[Tree], None], Kind, str]] = {
    "given up after retries": (
        lambda tree: tree.write(tree.port / "hw_counters", req_transport_retries_exceeded=2),
        Kind.SLOW_LINK,
        "req_transport_retries_exceeded",
    ),
    "port down": (
        lambda tree: tree.write(tree.port, state="1: DOWN"),
        Kind.SLOW_LINK,
        "mlx5_0 port 1 is DOWN, and up on the other hosts",
    ),
    "no subnet manager": (
        lambda tree: tree.write(tree.port, state="2: INIT"),
        Kind.SLOW_LINK,
        "no subnet manager has made it active",
    ),
    "fewer lanes of the cable": (
        lambda tree: tree.write(tree.port, rate="50 Gb/sec (1X HDR)"),
        Kind.SLOW_LINK,
        "mlx5_0 port 1 runs at 50 Gbit/s, and at 200 on other hosts",
    ),
    "interface slower": (
        lambda tree: tree.write(tree.interface, speed=10000),
        Kind.SLOW_LINK,
        "ens1 runs at 10 Gbit/s, and at 25 on other hosts",
    ),
    "interface down": (
        lambda tree: tree.write(tree.interface, operstate="down"),
        Kind.SLOW_LINK,
        "ens1 is DOWN",
    ),
    "card gone": (
        lambda tree: tree.port.rename(tree.root / "gone"),
        Kind.SLOW_LINK,
        "has no mlx5_0 port 1, which the other hosts have",
    ),
    "symbol errors": (
        lambda tree: tree.write(tree.port / "counters", symbol_error=5000),
        Kind.SLOW_LINK,
        "error counters of mlx5_0 port 1 grew during the check: symbol_error by 4993",
    ),
    "one link that went down and came back": (
        lambda tree: tree.write(tree.port / "counters", link_downed=8),
        Kind.SLOW_LINK,
        "link_downed by 1",
    ),
    "sent again": (
        lambda tree: tree.write(tree.port / "hw_counters", out_of_sequence=400),
        Kind.SLOW_LINK,
        "out_of_sequence by 397",
    ),
    "checksums": (
        lambda tree: tree.write(tree.interface / "statistics", rx_errors=90, rx_crc_errors=90),
        Kind.SLOW_LINK,
        "ens1 grew during the check: rx_crc_errors by 90, rx_errors by 90",
    ),
    "carrier": (
        lambda tree: tree.write(tree.interface, carrier_changes=4),
        Kind.SLOW_LINK,
        "carrier_changes by 2",
    ),
    "lanes of the card": (
        lambda tree: tree.write(tree.card, current_link_width=8),
        Kind.SLOW_LINK,
        "mlx5_0 (0000:3b:00.0) has 8 of 16 PCIe lanes",
    ),
    "speed of the card": (
        lambda tree: tree.write(tree.card, current_link_speed="8.0 GT/s PCIe"),
        Kind.SLOW_LINK,
        "the PCIe link of mlx5_0 (0000:3b:00.0) runs at 8 of 16 GT/s",
    ),
    "lanes of a GPU": (
        lambda tree: tree.write(tree.gpu, current_link_width=4),
        Kind.GPU,
        "GPU (0000:af:00.0) has 4 of 16 PCIe lanes",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_found_on_its_host_and_no_other(three: dict[str, Tree], fault: str) -> None:
    happens, kind, words = FAULTS[fault]
    first = read(three)
    happens(three["h2"])
    second = read(three)
    (finding,) = fabric.findings(first, second)
    assert (finding.kind, finding.where, finding.hosts) == (kind, "host h2", ("h2",))
    assert words in finding.text and finding.text.startswith("h2: "), finding.text
    assert finding.remedy
    slow = {figure.where for figure in fabric.figures(second, "") if figure.low}
    assert slow == ({"host h2"} if " runs at " in words and "Gbit" in words else set())


def test_of_two_hosts_the_slower_one_is_named(three: dict[str, Tree]) -> None:
    two = {name: three[name] for name in ("h1", "h2")}
    two["h1"].write(two["h1"].port, rate="100 Gb/sec (4X EDR)")
    told = read(two)
    (finding,) = fabric.findings(told, told)
    assert finding.hosts == ("h1",) and "at 200 on other hosts" in finding.text


def test_each_kind_of_fault_of_a_host_is_one_finding(three: dict[str, Tree]) -> None:
    first = read(three)
    for name in ("port down", "lanes of the card", "carrier"):
        FAULTS[name][0](three["h3"])
    findings = {finding.figure: finding for finding in fabric.findings(first, read(three))}
    assert {finding.hosts for finding in findings.values()} == {("h3",)} and len(findings) == 3
    assert "DOWN" in findings["fabric.ports"].text
    assert "8 of 16" in findings["fabric.pcie"].text and "seat the card" in findings["fabric.pcie"].remedy
    assert "carrier_changes" in findings["fabric.errors"].text


def test_a_host_alone_is_judged_by_itself(three: dict[str, Tree]) -> None:
    tree = three["h1"]
    tree.write(tree.port, state="1: DOWN")  # a port that nobody uses
    told = read({"h1": tree})
    assert fabric.findings(told, told) == []
    tree.write(tree.card, current_link_width=8)
    assert len(fabric.findings(told, read({"h1": tree}))) == 1


def test_lines_of_ranks_that_come_in_any_order() -> None:
    values = {rank: {"text": random.Random(rank).randbytes(2000).hex(), "rank": rank} for rank in range(3)}
    told = [lines.lines(rank, value) for rank, value in values.items()]
    assert all(4096 % len(line) == 0 for text in told for line in text.splitlines(keepends=True))
    pieces = [text[begin : begin + 4096] for text in told for begin in range(0, len(text), 4096)]
    random.Random(1).shuffle(pieces)
    assert lines.heard("a warning\n" + "".join(pieces)) == values
    # a rank that did not come to its end is none
    cut = told[0] + told[1][: -lines.LENGTH]
    assert lines.heard(cut) == {0: values[0]}


def test_this_machine(env: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole check, started by ddlrun."""
    for name, value in MPI_AS_ROOT.items():
        monkeypatch.setenv(name, value)
    hosts = (Host("localhost", 1, 0, {}),)
    bench = Bench(env.prefix, (), hosts, False, 1, 0, LEVELS["smoke"], 0.3, tmp_path, lambda _: None)
    result = fabric.check(bench, [])
    (told,) = result.facts["hosts"].values()
    cards = [path.parent.name for path in Path("/sys/class/net").glob("*/device")]
    assert {one["name"] for one in told["ports"] if one["kind"] == "interface"} == set(cards)
    if cards:
        assert result.status is Status.PASSED, result.findings
    else:
        assert result.status is Status.SKIPPED and "no network port of hardware" in result.reason
    assert len(result.logs) == 2 and all(Path(log).read_text() for log in result.logs)
