"""Load for minutes: the last minute against the first one, here with seconds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from program_runner import Environment
from test_validate_hosts import GOOD

from ddl_validate.common.mpi import MPI_AS_ROOT
from ddl_validate.suite.bench import Bench, Host
from ddl_validate.suite.checks import sustained
from ddl_validate.suite.levels import LEVELS, level_of
from ddl_validate.suite.model import CheckResult, Kind, Severity, Status
from ddl_validate.suite.probe.sustained import of_host, window


def host(compute: float = 1.0, memory: float = 1.0, **reasons: Any) -> dict[str, Any]:
    """compute, memory: the share of the first minute that is left in the last."""
    first = {"compute": 80e9, "memory": 20e9}
    last = {"compute": 80e9 * compute, "memory": 20e9 * memory}
    return {"first": first, "last": last, "reasons": {**GOOD, **reasons}}


def checked(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    hosts: dict[str, dict[str, Any]],
    exchanged: tuple[float, float] = (1e9, 1e9),
    machines: list[int] | None = None,
) -> CheckResult:
    told = {"hosts": list(hosts.values()), "exchanged": exchanged, "cycles": 60}
    told["machines"] = machines or list(range(len(hosts)))

    def start(self: Bench, name: str, program: list[str], result: CheckResult, *_: Any) -> str:
        assert name == "probe-sustained" and program[program.index("--seconds") + 1] == "180"
        assert self.level.limit == LEVELS["daily"].limit + 180
        result.commands.append("ddlrun sustained")
        return json.dumps(told) + "\n"

    monkeypatch.setattr(Bench, "start", start)
    members = tuple(Host(name, 2, 0, {}) for name in hosts)
    level = level_of("daily")
    return sustained.check(Bench(folder, (), members, False, 2, 0, level, 0.15, folder, print), [])


HEALTHY = {"a": host(), "b": host(0.95, 0.97), "c": host(1.1)}


def test_hosts_that_stay_as_fast(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result = checked(monkeypatch, tmp_path, HEALTHY)
    assert result.status is Status.PASSED and result.findings == [] and result.not_judged == {}
    assert {figure.name for figure in result.figures} == {
        *("sustained.compute", "sustained.memory", "sustained.exchange")
    }


def test_a_host_that_gets_hot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hot = host(0.6, heat_stops=7.0, temperature=96.0)
    (finding,) = checked(monkeypatch, tmp_path, {**HEALTHY, "c": hot}).findings
    assert (finding.kind, finding.where, finding.hosts) == (Kind.SLOW_HOST, "host c", ("c",))
    assert "after 180 s of load, c computes at 60% of what it did at first" in finding.text
    assert "lowered its clock for heat 7 times" in finding.text and "96 °C" in finding.text
    assert "fans" in finding.remedy and finding.figure == "sustained.compute"
    memory = checked(monkeypatch, tmp_path, {**HEALTHY, "c": host(1.0, 0.5)}).findings
    assert [(one.kind, one.hosts) for one in memory] == [(Kind.SLOW_MEMORY, ("c",))]


def test_what_all_hosts_lose_drains_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    findings = checked(monkeypatch, tmp_path, {name: host(0.5) for name in HEALTHY}).findings
    assert [(one.where, one.severity) for one in findings] == [
        (f"host {name}", Severity.FAIL) for name in HEALTHY
    ]
    (finding,) = checked(monkeypatch, tmp_path, HEALTHY, exchanged=(1e9, 0.5e9)).findings
    assert (finding.kind, finding.where, finding.hosts) == (Kind.SLOW_TIER, "cluster", ())


def test_hosts_that_share_a_machine_are_not_judged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result = checked(monkeypatch, tmp_path, {name: host(0.2) for name in HEALTHY}, machines=[0, 0, 0])
    assert result.findings == [] and "share a machine" in result.not_judged["sustained"]


def test_the_beginning_and_the_end() -> None:
    times = [float(number) for number in range(0, 600, 3)]
    first, last = window(times, 600.0)
    assert (first[0], first[-1]) == (0, 20) and (last[0], last[-1]) == (179, 199)
    assert window([0.0, 1.0, 2.0, 3.0], 3.0) == ([0, 1], [2, 3])
    assert window([0.0], 0.1) == ([0], [0])
    ranks = [[{"rate": 1.0, "copied": 2.0}, {"rate": 3.0, "copied": 2.0}], [{"rate": 1.0, "copied": 1.0}] * 2]
    assert of_host(ranks, [0]) == {"compute": 2.0, "memory": 3.0}
    assert of_host(ranks, [0, 1]) == {"compute": 3.0, "memory": 3.0}


def test_seconds_of_load_on_this_machine(
    env: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real cores, memory and all-reduces; what this machine does beside it decides the figures."""
    for name, value in MPI_AS_ROOT.items():
        monkeypatch.setenv(name, value)
    level = replace(LEVELS["smoke"], sustained=3.0)
    hosts = (Host("localhost", 2, 0, {}),)
    bench = Bench(env.prefix, (), hosts, False, 2, 0, level, 0.9, tmp_path, lambda _: None)
    result = sustained.check(bench, [])
    assert result.status is Status.PASSED and result.findings == []
    values = {figure.name: figure.value for figure in result.figures}
    assert values.keys() == {"sustained.compute", "sustained.memory"}
    assert values["sustained.compute"] > 1 and values["sustained.memory"] > 1e8
    assert result.facts["cycles"] >= 5 and result.facts["seconds"] == 3.0
    skipped = sustained.check(replace(bench, level=LEVELS["smoke"]), [])
    assert skipped.status is Status.SKIPPED and "--sustained SECONDS" in skipped.reason
