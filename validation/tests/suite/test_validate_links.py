"""What the search for slow links found, as figures and findings; and effects of slow hosts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ddl_validate.common.running import RunFailed
from ddl_validate.suite.bench import Bench, Host
from ddl_validate.suite.checks import links as check_links
from ddl_validate.suite.errors import ValidateError
from ddl_validate.suite.levels import level_of
from ddl_validate.suite.model import EFFECT, CheckResult, Finding, Kind, Severity, Status

NAMES = ["a", "b", "c", "d"]


FAST = {"name": "mlx5_0 port 1", "kind": "InfiniBand", "state": "ACTIVE", "rate": 1.1e9}
SLOW = {"name": "eth0", "kind": "interface", "state": "UP", "rate": 125e6}


def traffic(used: dict[str, Any], *others: dict[str, Any], moved: float = 1e9) -> dict[str, Any]:
    """What a host tells of its ports, of which the first has carried all."""
    ports = [{**used, "bytes": 1.05e9}, *({**port, "bytes": 2e6} for port in others)]
    return {"moved": moved, "ports": ports}


def told(count: int = 4, **more: Any) -> dict[str, Any]:
    """What the probe prints of healthy hosts of one rack, with some of it replaced."""
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    return {
        "links": {str(host): 1e9 for host in range(count)} if count > 2 else {},
        "uplink": None,
        "rounds": 3,
        "best": {str(host): 1e9 for host in range(count)},
        "latency": {str(host): 2e-5 for host in range(count)},
        "contended": [],
        "unjudged": [],
        "across": [],
        "rates": [[*pair, 1e9, 1e9] for pair in pairs],
        "verdicts": [],
        "machines": list(range(count)),
        "unfinished": False,
        "traffic": {str(host): traffic(FAST) for host in range(count)},
        **more,
    }


def verdict(fault: str, members: list[int], sending: bool | None = None, rate: float = 1e8) -> dict[str, Any]:
    return {"fault": fault, "members": members, "rate": rate, "expected": 1e9, "sending": sending}


class Started:
    """Stands in for Bench.start; broken: the program failed after its words."""

    def __init__(self, printed: str, broken: bool = False) -> None:
        self.printed, self.broken = printed, broken
        self.program: list[str] = []

    def __call__(self, bench: Bench, name: str, program: list[str], result: CheckResult, *_: object) -> str:
        self.program = program
        log = bench.folder / f"{name}.log"
        log.write_text(self.printed)
        result.commands.append("ddlrun probe")
        result.logs.append(str(log))
        if self.broken:
            raise RunFailed(f"{name} ended with exit code 1")
        return self.printed


def checked(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    printed: dict[str, Any] | str,
    racks: list[int] | None = None,
    before: list[CheckResult] | None = None,
    broken: bool = False,
) -> CheckResult:
    text = printed if isinstance(printed, str) else f"words\n{json.dumps(printed)}\nmore words\n"
    started = Started(text, broken)
    monkeypatch.setattr(Bench, "start", lambda self, *words: started(self, *words))
    count = len(printed["machines"]) if isinstance(printed, dict) else 4
    own = racks or [0] * count
    hosts = tuple(Host(name, 2, rack, {}) for name, rack in zip(NAMES[:count], own, strict=True))
    level = level_of("smoke")
    bench = Bench(folder, (), hosts, racks is not None, 2, 0, level, 0.2, folder, print)
    result = check_links.check(bench, before or [])
    if racks and count > 1:
        assert started.program[-2:] == ["--racks", ",".join(map(str, racks))]
    return result


def named(result: CheckResult) -> set[tuple[Kind, str, tuple[str, ...]]]:
    return {(one.kind, one.where, one.hosts) for one in result.findings}


def test_healthy_links(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result = checked(monkeypatch, tmp_path, told())
    assert result.status is Status.PASSED and result.findings == []
    assert {(one.name, one.where) for one in result.figures} == {
        (name, f"host {host}") for name in ("link.bandwidth", "link.latency", "link.share") for host in NAMES
    }
    assert not any(one.low for one in result.figures)
    assert result.facts["carriers"]["a"] == "RDMA by mlx5_0 port 1 (InfiniBand, 8.8 Gbit/s)"


@pytest.mark.parametrize(
    ("one", "expected", "words"),
    [
        (verdict("host", [2]), (Kind.SLOW_LINK, "host c", ("c",)), "c sends and receives 100 MB/s"),
        (verdict("host", [2], True), (Kind.SLOW_LINK, "host c", ("c",)), "c sends 100 MB/s"),
        (verdict("host", [2], False), (Kind.SLOW_LINK, "host c", ("c",)), "c receives 100 MB/s"),
        (verdict("silent", [2], rate=0.0), (Kind.SLOW_LINK, "host c", ("c",)), "c did not answer"),
        (verdict("path", [0, 3]), (Kind.SLOW_LINK, "hosts a and d", ()), "between a and d: 100 MB/s"),
        (verdict("rack", [1]), (Kind.SLOW_TIER, "rack 1", ()), "the uplink of rack 1 carries 100 MB/s"),
        (verdict("racks", [0, 1]), (Kind.SLOW_TIER, "racks 0 and 1", ()), "between racks 0 and 1"),
    ],
)
def test_each_fault_is_a_finding(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    one: dict[str, Any],
    expected: tuple[Kind, str, tuple[str, ...]],
    words: str,
) -> None:
    result = checked(monkeypatch, tmp_path, told(verdicts=[one]), [0, 0, 1, 1])
    assert named(result) == {expected} and result.status is Status.FAILED
    (finding,) = result.findings
    assert words in finding.text and finding.remedy
    if one["rate"]:
        assert "1 GB/s are expected (10%)" in finding.text.replace("1.00 GB/s", "1 GB/s")


def test_the_figure_of_a_slow_host_is_low(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result = checked(monkeypatch, tmp_path, told(verdicts=[verdict("host", [2], True)]))
    assert {one.where for one in result.figures if one.low} == {"host c"}


def test_a_link_of_a_host_that_is_slow_itself_is_an_effect(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    slow = CheckResult("hosts", "", Status.FAILED)
    slow.findings = [Finding(Kind.SLOW_HOST, "host c", "", "", ("c",))]
    verdicts = [verdict("host", [2]), verdict("path", [0, 3]), verdict("path", [1, 2])]
    result = checked(monkeypatch, tmp_path, told(verdicts=verdicts), before=[slow])
    assert named(result) == {(Kind.SLOW_LINK, "hosts a and d", ())}
    assert set(result.not_judged.values()) == {EFFECT} and len(result.not_judged) == 2


def test_a_latency_that_is_several_times_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    late = {"0": 2e-5, "1": 3e-5, "2": 2e-5, "3": 9e-4}
    result = checked(monkeypatch, tmp_path, told(latency=late))
    assert named(result) == {(Kind.SLOW_LINK, "host d", ("d",))}
    assert "a small message of d takes 900 µs" in result.findings[0].text
    assert [(one.name, one.where) for one in result.figures if one.low] == [("link.latency", "host d")]
    # it is slow in any case: one finding
    both = checked(monkeypatch, tmp_path, told(latency=late, verdicts=[verdict("host", [3])]))
    assert len(both.findings) == 1


def test_a_latency_is_compared_with_the_median_of_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of four hosts two are late: with its own latency in the median, neither would be."""
    late = {"0": 2e-5, "1": 2e-5, "2": 9e-4, "3": 9e-4}
    result = checked(monkeypatch, tmp_path, told(latency=late))
    assert {finding.where for finding in result.findings} == {"host c", "host d"}
    expected = {
        figure.where: figure.expected.value
        for figure in result.figures
        if figure.name == "link.latency" and figure.expected
    }
    assert expected == {"host a": 9e-4, "host b": 9e-4, "host c": 2e-5, "host d": 2e-5}


def test_two_hosts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nobody can say which one it is; one direction shows what the other one should do."""
    result = checked(monkeypatch, tmp_path, told(2))
    assert named(result) == set()
    assert {one.where for one in result.figures} == {"hosts a and b"}
    result = checked(monkeypatch, tmp_path, told(2, rates=[[0, 1, 1e8, 1e9]]))
    assert named(result) == {(Kind.SLOW_LINK, "hosts a and b", ())}
    assert result.findings[0].text.startswith("from a to b: 100 MB/s")


def test_rates_of_racks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A small rack that cannot load its uplink is not judged."""
    across = [[0, 1, 4e9], [0, 2, 1e9], [1, 2, 1e9]]
    result = checked(monkeypatch, tmp_path, told(across=across, uplink=4e9), [0, 0, 1, 2])
    racks = {one.where: one for one in result.figures if one.name == "rack.bandwidth"}
    assert {where: one.value for where, one in racks.items()} == {"rack 0": 4e9, "rack 1": 4e9, "rack 2": 1e9}
    assert racks["rack 0"].expected is not None and racks["rack 2"].expected is None


def test_one_host_has_no_link(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result = checked(monkeypatch, tmp_path, told(1))
    assert result.status is Status.SKIPPED and "one host" in result.reason


def test_a_probe_that_could_not_end_in_order_has_told_enough(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    silent = told(verdicts=[verdict("silent", [2], rate=0.0)], unfinished=True)
    assert named(checked(monkeypatch, tmp_path, silent, broken=True)) == {(Kind.SLOW_LINK, "host c", ("c",))}
    with pytest.raises(RunFailed):
        checked(monkeypatch, tmp_path, "it broke\n", broken=True)
    with pytest.raises(ValidateError, match="printed no result"):
        checked(monkeypatch, tmp_path, "{broken\n")


def slow_everywhere(count: int, rate: float, ports: dict[str, Any]) -> dict[str, Any]:
    """All hosts alike, so that a comparison with each other shows nothing."""
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    return told(
        count,
        links={str(host): rate for host in range(count)} if count > 2 else {},
        best={str(host): rate for host in range(count)},
        rates=[[*pair, rate, rate] for pair in pairs],
        traffic={str(host): ports for host in range(count)},
    )


@pytest.mark.parametrize("count", [2, 4])
def test_all_hosts_use_the_management_network(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, count: int
) -> None:
    hdr = {**FAST, "rate": 25e9}
    result = checked(monkeypatch, tmp_path, slow_everywhere(count, 117e6, traffic(SLOW, hdr)))
    (finding,) = result.findings
    assert (finding.kind, finding.hosts, finding.severity) == (Kind.SLOW_LINK, (), Severity.FAIL)
    assert finding.where == ("hosts a and b" if count == 2 else "cluster")
    for words in (
        "messages go by TCP/IP by eth0 (1 Gbit/s) at 117 MB/s, 94% of its rate",
        "mlx5_0 port 1 (InfiniBand, 200 Gbit/s) is up, too, and that is 0.5% of its rate",
    ):
        assert words in finding.text, finding.text
    assert "-interface" in finding.remedy and result.status is Status.FAILED
    shares = [figure for figure in result.figures if figure.name == "link.share"]
    assert len(shares) == (1 if count == 2 else 4) and not any(figure.low for figure in shares)


def test_all_links_fall_short_of_their_ports(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """TCP on a fast port is a warning: one connection hardly fills it."""
    result = checked(monkeypatch, tmp_path, slow_everywhere(4, 0.4e9, traffic(FAST, SLOW)))
    (finding,) = result.findings
    assert finding.severity is Severity.FAIL and finding.figure == "link.share"
    assert "host a, host b, host c, host d: messages go by RDMA by mlx5_0 port 1" in finding.text
    assert "at 400 MB/s, 36% of its rate" in finding.text
    ethernet = {**SLOW, "rate": 12.5e9}
    result = checked(monkeypatch, tmp_path, slow_everywhere(4, 3e9, traffic(ethernet, SLOW)))
    (finding,) = result.findings
    assert finding.severity is Severity.WARN and result.status is Status.PASSED
    assert "TCP/IP by eth0 (100 Gbit/s) at 3 GB/s, 24% of its rate" in finding.text
    down = {**FAST, "rate": 25e9, "state": "DOWN"}
    assert checked(monkeypatch, tmp_path, slow_everywhere(4, 117e6, traffic(SLOW, down))).findings == []


def test_tcp_where_there_is_rdma(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also by IP over InfiniBand, where the port counts as much as the interface, which tells no rate."""
    hdr, ipoib = {**FAST, "rate": 25e9}, {**SLOW, "name": "ib0", "rate": None}
    both = {"moved": 1e9, "ports": [{**hdr, "bytes": 1.06e9}, {**ipoib, "bytes": 1.01e9}]}
    result = checked(monkeypatch, tmp_path, slow_everywhere(4, 3e9, both))
    (finding,) = result.findings
    assert finding.severity is Severity.FAIL and finding.figure == "link.port"
    assert "TCP/IP by ib0 (200 Gbit/s) at 3 GB/s, 12% of its rate; mlx5_0 port 1" in finding.text
    roce = {**FAST, "rate": 3.125e9}
    good = traffic({**SLOW, "rate": 3.125e9}, roce)
    assert checked(monkeypatch, tmp_path, slow_everywhere(4, 2.9e9, good)).findings == []


def test_messages_over_several_rails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rails = [{**FAST, "name": f"mlx5_{number} port 1", "bytes": 0.26e9} for number in range(4)]
    result = checked(monkeypatch, tmp_path, slow_everywhere(4, 4e9, {"moved": 1e9, "ports": rails}))
    assert result.findings == [] and "link.share" not in result.not_judged


def test_one_host_uses_another_port(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The comparison with the others names it."""
    ports = {str(host): traffic(FAST, SLOW) for host in range(3)} | {"3": traffic(SLOW, FAST)}
    survey = told(
        best={"0": 1e9, "1": 1e9, "2": 1e9, "3": 0.1e9}, traffic=ports, verdicts=[verdict("host", [3])]
    )
    result = checked(monkeypatch, tmp_path, survey)
    assert named(result) == {(Kind.SLOW_LINK, "host d", ("d",))}


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"machines": [0, 0, 1, 1]}, "hosts share a machine"),
        ({"traffic": {}}, "no port of hardware whose rate is known counted the messages of a, b, c, d"),
        ({"traffic": {"0": traffic(FAST, moved=9e9)}}, "counted the messages of a, b, c, d"),
        ({"traffic": {"0": traffic({**FAST, "rate": None})}}, "counted the messages of a, b, c, d"),
    ],
)
def test_ports_that_tell_nothing_are_not_judged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, more: dict[str, Any], why: str
) -> None:
    result = checked(monkeypatch, tmp_path, told(**more))
    assert result.findings == [] and why in result.not_judged["link.share"]
    assert not any(figure.name == "link.share" for figure in result.figures)
