"""Slow cores and slow memory: what the probes read from the kernel, and who is named for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from validation.validate.attribution import expected_of_peers, hosts_at_fault, shortfalls
from validation.validate.bench import Bench, Host
from validation.validate.checks import hosts as check_hosts
from validation.validate.levels import level_of
from validation.validate.model import CheckResult, Finding, Kind, Status

GOOD: dict[str, Any] = {
    "rates": [5e9, 5e9],
    "late": 0.01,
    "longest": 2.0,
    "at_work": 0.99,
    "quota_stops": 0,
    "quota_stood": 0.0,
    "stolen": 0.0,
    "clock": 3e9,
    "highest_clock": 3.2e9,
    "heat_stops": 0.0,
    "temperature": 60.0,
}


def bench_of(folder: Path, names: list[str], tolerance: float = 0.2) -> Bench:
    hosts = tuple(Host(name, 2, 0, {}) for name in names)
    level = level_of("smoke")
    return Bench(folder, (), hosts, False, 2, 0, level, tolerance, folder, print)


def checked(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    cores: dict[str, dict[str, Any]],
    memory: dict[str, float],
) -> CheckResult:
    """The check's result where the probes print this."""
    printed = {
        "cores": {"hosts": [{**GOOD, **one} for one in cores.values()], "rounds": 2},
        "memory": {"hosts": list(memory.values()), "block": 1 << 24, "rounds": 2},
    }

    def start(self: Bench, name: str, program: list[str], result: CheckResult, hosts: Any, ranks: int) -> str:
        assert ranks == 2
        result.commands.append(" ".join(program))
        return "some words of a library\n" + json.dumps(printed[name.removeprefix("probe-")]) + "\n"

    monkeypatch.setattr(Bench, "start", start)
    return check_hosts.check(bench_of(folder, list(cores)), [])


HEALTHY = {"a": 10e9, "b": 10.5e9, "c": 9.5e9, "d": 10e9}


def test_healthy_hosts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result = checked(monkeypatch, tmp_path, {name: {} for name in HEALTHY}, HEALTHY)
    assert result.status is Status.PASSED and result.findings == []
    assert {figure.name for figure in result.figures} == {
        "host.compute",
        "host.core",
        "host.memory",
        "host.jitter",
    }
    assert not any(figure.low for figure in result.figures)


@pytest.mark.parametrize(
    ("told", "words", "remedy"),
    [
        ({"rates": [1e9, 1e9], "quota_stops": 9}, "a quota of processor time stopped it 9 times", "cpu.max"),
        ({"rates": [2e9, 2e9], "clock": 1e9}, "its clock is at 1.00 of 3.20 GHz", "cpupower"),
        ({"rates": [2e9, 2e9], "heat_stops": 4.0}, "lowered its clock for heat 4 times", "fans"),
        ({"rates": [2e9, 2e9], "stolen": 0.5}, "gave 50% of its time to others", "virtual machine"),
        ({"rates": [2e9, 2e9], "at_work": 0.4}, "had a processor for 40% of the time", "top"),
        ({"rates": [2e9, 2e9]}, "c: its 2 cores compute 4 Gop/s, the median of the other", "other"),
        ({"rates": [5e9, 1e9]}, "its slowest core computes 1 Gop/s", "other"),
    ],
)
def test_why_a_host_is_slow(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, told: dict[str, Any], words: str, remedy: str
) -> None:
    cores = {name: told if name == "c" else {} for name in HEALTHY}
    (finding,) = checked(monkeypatch, tmp_path, cores, HEALTHY).findings
    assert (finding.kind, finding.where, finding.hosts) == (Kind.SLOW_HOST, "host c", ("c",))
    assert words in finding.text and "the median of the other hosts is" in finding.text
    assert remedy in finding.remedy


def test_slow_memory_of_a_host_with_slow_cores_is_an_effect(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    memory = {**HEALTHY, "b": 2e9, "c": 2e9}
    cores: dict[str, dict[str, Any]] = {**{name: {} for name in HEALTHY}, "c": {"rates": [1e9, 1e9]}}
    result = checked(monkeypatch, tmp_path, cores, memory)
    assert {(one.kind, one.where) for one in result.findings} == {
        (Kind.SLOW_HOST, "host c"),
        (Kind.SLOW_MEMORY, "host b"),
    }
    assert len(result.facts["effects"]) == 1 and result.facts["effects"][0].startswith("c copies 2 GB/s")


def test_one_host_is_compared_with_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result = checked(monkeypatch, tmp_path, {"a": {}}, {"a": 1e9})
    assert result.status is Status.PASSED
    assert all(figure.expected is None for figure in result.figures)


def test_the_median_of_the_others() -> None:
    values = {"a": 10.0, "b": 8.0, "c": 4.0}
    assert expected_of_peers(values) == {"a": 8.0, "b": 10.0, "c": 10.0}
    assert [one.host for one in shortfalls(values, 0.3)] == ["c"]
    # of two hosts, the slower one is the slow one
    (slow,) = shortfalls({"a": 10.0, "b": 1.0}, 0.2)
    assert (slow.host, slow.value, slow.expected) == ("b", 1.0, 10.0)
    assert shortfalls({"a": 1.0}, 0.2) == [] and expected_of_peers({}) == {}


def test_hosts_at_fault() -> None:
    findings = [
        Finding(Kind.SLOW_MEMORY, "host b", "", "", ("b",)),
        Finding(Kind.SLOW_LINK, "host c", "", "", ("c",)),
    ]
    assert hosts_at_fault([CheckResult("hosts", "", Status.FAILED, findings=findings)]) == {"b"}
