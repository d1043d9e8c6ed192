"""Which ports are rails, and rails that are unlike; hosts with several are in test_validate_faults.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ddl_validate.suite.bench import Bench, Host
from ddl_validate.suite.checks import rails
from ddl_validate.suite.errors import ValidateError
from ddl_validate.suite.expect import kind_of
from ddl_validate.suite.levels import LEVELS
from ddl_validate.suite.model import CheckResult, Kind, Status


def port(
    name: str, kind: str = "InfiniBand", rate: float | None = 25e9, state: str = "ACTIVE"
) -> dict[str, Any]:
    return {"name": name, "kind": kind, "state": state, "rate": rate}


def interface(name: str, rate: float | None = 12.5e9, state: str = "UP") -> dict[str, Any]:
    return port(name, "interface", rate, state)


A, B = port("a port 1"), port("b port 1")
SLOW_A, SLOW_B = port("a port 1", rate=5e9), port("b port 1", rate=5e9)
ETH0, ETH1 = interface("eth0"), interface("eth1")


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ([[port("mlx5_0 port 1"), port("mlx5_1 port 1"), ETH0]] * 2, ("mlx5_0:1", "mlx5_1:1")),
        # a slower one is for something else
        ([[A, SLOW_B]] * 2, ("a:1",)),
        # one that is down, or that another host does not have
        ([[A, port("b port 1", state="DOWN")]] * 2, ("a:1",)),
        ([[A, port("b port 2")], [A]], ("a:1",)),
        # hosts of two generations
        ([[A, B], [SLOW_A, SLOW_B]], ("a:1", "b:1")),
        # where one host has none for RDMA, interfaces are compared
        ([[ETH0, ETH1, A], [ETH0, ETH1]], ("eth0", "eth1")),
        ([[ETH0, interface("eth1", rate=None)]] * 2, ("eth0",)),
        ([[]] * 2, ()),
    ],
)
def test_ports_that_are_rails(hosts: list[list[dict[str, Any]]], expected: tuple[str, ...]) -> None:
    assert rails.common({str(number): {"ports": ports} for number, ports in enumerate(hosts)}) == expected


def test_a_rail_that_is_slow_on_all_hosts() -> None:
    [finding] = rails.unlike({"mlx5_0:1": 20e9, "mlx5_1:1": 10e9, "mlx5_2:1": 17.1e9}, 0.15)
    assert finding.kind is Kind.SLOW_TIER and finding.where == "cluster" and finding.hosts == ()
    assert finding.text == "rail mlx5_1:1 carries 10 GB/s between hosts, and another one 20 GB/s"
    assert rails.unlike({"eth0": 1e9, "eth1": 0.86e9}, 0.15) == [] == rails.unlike({}, 0.15)


def survey(*used: str) -> dict[str, Any]:
    """Of two hosts, whose messages went by these ports."""
    ports = [{**port(name), "bytes": 1e9} for name in used]
    return {
        "verdicts": [],
        "unjudged": [],
        "rates": [[0, 1, 20e9, 19e9]],
        "best": {"0": 20e9, "1": 20e9},
        "latency": {},
        "traffic": {str(host): {"moved": 1e9, "ports": ports[host : host + 1]} for host in range(len(used))},
    }


def checked(
    monkeypatch: pytest.MonkeyPatch, folder: Path, surveys: dict[str, Any], hosts: int = 2
) -> CheckResult:
    """The check on hosts where the probe `pairs` finds this by each rail, or fails."""

    def probe(_bench: Bench, result: CheckResult, name: str, _arguments: list[str], **options: Any) -> Any:
        words = [*(f"{name}={value}" for name, value in options["variables"].items()), *options["options"]]
        result.commands.append(" ".join(words))
        answer = surveys[options["log"].removeprefix("probe-pairs-").replace("-", ":")]
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(rails, "probe", probe)
    members = tuple(Host(name, 1, 0, {}) for name in ("a", "b")[:hosts])
    bench = Bench(
        folder, (), members, False, 1, 0, LEVELS["smoke"], 0.15, folder, print, rails=tuple(surveys)
    )
    return rails.check(bench, [])


def test_each_rail_is_used_by_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    slow = {**survey(), "rates": [[0, 1, 2e9, 1e9]], "best": {"0": 2e9, "1": 2e9}}
    fast = survey("mlx5_0 port 1", "mlx5_0 port 1")
    surveys = {"mlx5_0:1": fast, "mlx5_1:1": survey("mlx5_1 port 1"), "eth0": slow}
    result = checked(monkeypatch, tmp_path, surveys)
    assert result.commands == [
        "UCX_NET_DEVICES=mlx5_0:1 OMPI_MCA_pml=ucx",
        "UCX_NET_DEVICES=mlx5_1:1 OMPI_MCA_pml=ucx",
        "OMPI_MCA_pml=ob1 -interface eth0",
    ]
    assert [(figure.where, figure.value, figure.scale) for figure in result.figures] == [
        ("hosts a and b", 19e9, {"rail": 0}),
        ("hosts a and b", 19e9, {"rail": 1}),
        ("hosts a and b", 1e9, {"rail": 2}),
    ]
    one_way, whole = result.findings
    assert one_way.text.startswith("rail eth0: from b to a: 1 GB/s; 2 GB/s are expected")
    assert whole.text.startswith("rail eth0 carries 2 GB/s")
    assert {one_way.figure, whole.figure} == {rails.FIGURE}
    assert kind_of(rails.FIGURE) is Kind.SLOW_LINK


def test_a_rail_that_mpi_does_not_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    surveys = {
        "a:1": survey("a port 1", "b port 1"),
        "b:1": survey("b port 1"),
        "eth0": ValidateError("no such interface"),
    }
    result = checked(monkeypatch, tmp_path, surveys)
    assert result.not_judged == {"rail a:1": "messages went by a:1, b:1", "rail eth0": "no such interface"}
    assert {figure.scale["rail"] for figure in result.figures} == {1} and result.status is Status.PASSED
    alone = checked(monkeypatch, tmp_path, {name: surveys["eth0"] for name in ("eth0", "eth1")})
    assert alone.status is Status.SKIPPED and "eth0, eth1" in alone.reason


def test_hosts_without_several_rails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert checked(monkeypatch, tmp_path, {"eth0": survey()}, hosts=1).status is Status.SKIPPED
    result = checked(monkeypatch, tmp_path, {"eth0": survey()})
    assert result.status is Status.SKIPPED and "--rails" in result.reason
    with pytest.raises(ValidateError, match="--rails eth0,x y"):
        checked(monkeypatch, tmp_path, {"eth0,x y": survey()})
