"""Slow cores and slow memory: what the probes read from the kernel, and who is named for it."""

from __future__ import annotations

import json
import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ddl_validate.suite.attribution import expected_of_peers, hosts_at_fault, shortfalls
from ddl_validate.suite.bench import Bench, Host
from ddl_validate.suite.checks import hosts as check_hosts
from ddl_validate.suite.levels import level_of
from ddl_validate.suite.model import EFFECT, CheckResult, Finding, Kind, Severity, Status
from ddl_validate.suite.probe.cores import of_host, peak
from ddl_validate.suite.probe.elapsed import Elapsed, group_folders, quota_stops
from ddl_validate.suite.probe.memory import block_size, last_caches
from ddl_validate.suite.probe.memory import peak as memory_peak

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
    "peak": 10e9,
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
    bench: Bench | None = None,
    peaks: list[float | None] | None = None,
) -> CheckResult:
    """The check's result where the probes print this. peaks: of the hosts' memory."""
    printed = {
        "cores": {"hosts": [{**GOOD, **one} for one in cores.values()], "rounds": 2},
        "memory": {
            "hosts": list(memory.values()),
            "block": 1 << 24,
            "rounds": 2,
            "peaks": peaks or [40e9] * len(memory),
        },
    }

    def start(self: Bench, name: str, program: list[str], result: CheckResult, *others: Any) -> str:
        assert others[1] == 2  # ranks
        result.commands.append(" ".join(program))
        return "some words of a library\n" + json.dumps(printed[name.removeprefix("probe-")]) + "\n"

    monkeypatch.setattr(Bench, "start", start)
    return check_hosts.check(bench or bench_of(folder, list(cores)), [])


def test_kinds_are_compared_among_themselves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The slower kind is not slow; a slow host of it is."""
    rates = {**{f"n{number}": 5e9 for number in range(4)}, **{f"o{number}": 3e9 for number in range(3)}}
    facts = {name: {"cpu": "new" if name[0] == "n" else "old"} for name in rates}
    bench = bench_of(tmp_path, list(rates))
    bench = replace(bench, hosts=tuple(replace(host, facts=facts[host.name]) for host in bench.hosts))
    cores = {name: {"rates": [rate, rate]} for name, rate in rates.items()}
    memory = {name: 2 * rate for name, rate in rates.items()}
    assert checked(monkeypatch, tmp_path, cores, memory, bench).findings == []
    cores["o1"]["rates"] = [1.5e9, 1.5e9]
    (finding,) = checked(monkeypatch, tmp_path, cores, memory, bench).findings
    assert finding.hosts == ("o1",) and "(50%)" in finding.text


def test_of_two_hosts_none_is_drained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cores: dict[str, dict[str, Any]] = {"a": {}, "b": {"rates": [1e9, 1e9]}}
    (finding,) = checked(monkeypatch, tmp_path, cores, {"a": 10e9, "b": 10e9}).findings
    assert (finding.where, finding.hosts) == ("host b", ())


HEALTHY = {"a": 10e9, "b": 10.5e9, "c": 9.5e9, "d": 10e9}


def test_healthy_hosts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result = checked(monkeypatch, tmp_path, {name: {} for name in HEALTHY}, HEALTHY)
    assert result.status is Status.PASSED and result.findings == []
    assert {figure.name for figure in result.figures} == {
        "host.compute",
        "host.core",
        "host.memory",
        "host.jitter",
        "host.compute.share",
        "host.memory.share",
    }
    assert result.not_judged == {}
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
    ((text, why),) = result.not_judged.items()
    assert text.startswith("c copies 2 GB/s") and why == EFFECT


def test_one_host_is_compared_with_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result = checked(monkeypatch, tmp_path, {"a": {}}, {"a": 10e9})
    assert result.status is Status.PASSED
    assert {figure.name for figure in result.figures if figure.expected} == {
        "host.compute.share",
        "host.memory.share",
    }


def test_the_median_of_the_others() -> None:
    values = {"a": 10.0, "b": 8.0, "c": 4.0}
    expected = expected_of_peers(values, 0.3)
    assert {host: one.value for host, one in expected.items()} == {"a": 8.0, "b": 10.0, "c": 10.0}
    assert [one.host for one in shortfalls(values, 0.3)] == ["c"]
    # of two hosts, the slower one is the slow one
    (slow,) = shortfalls({"a": 10.0, "b": 1.0}, 0.2)
    assert (slow.host, slow.value, slow.expected) == ("b", 1.0, 10.0)
    assert shortfalls({"a": 1.0}, 0.2) == [] and expected_of_peers({}, 0.2) == {}


@pytest.mark.parametrize("hosts", [3, 8, 100, 1000])
@pytest.mark.parametrize("noise", [0.01, 0.05, 0.08])
def test_what_scatters_is_no_shortfall_and_half_is(hosts: int, noise: float) -> None:
    """In runs with noise in all hosts none is named; with a host at a third, it is, alone."""
    choose = random.Random(hosts)
    for _ in range(50):
        values = {f"n{host}": 100 * (1 - abs(choose.gauss(0, noise))) for host in range(hosts)}
        assert shortfalls(values, 0.3 if hosts < 5 else 0.15) == []
        slow = choose.choice(list(values))
        assert [one.host for one in shortfalls({**values, slow: 33.0}, 0.15)] == [slow] or hosts < 5


def test_hosts_at_fault() -> None:
    findings = [
        Finding(Kind.SLOW_MEMORY, "host b", "", "", ("b",)),
        Finding(Kind.SLOW_LINK, "host c", "", "", ("c",)),
    ]
    assert hosts_at_fault([CheckResult("hosts", "", Status.FAILED, findings=findings)]) == {"b"}


# ---- what the probes read


def group(folder: Path, stat: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cpu.stat").write_text(stat)


def test_quotas_of_both_versions_of_control_groups(tmp_path: Path) -> None:
    group(tmp_path / "cpu,cpuacct", "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n")
    group(tmp_path / "cpu,cpuacct/job", "nr_periods 9\nnr_throttled 4\nthrottled_time 2500000000\n")
    folders = group_folders("4:cpu,cpuacct:/job\n3:cpuset:/\n1:name=systemd:/x\n0::/\n", tmp_path)
    assert folders == [tmp_path / "cpu,cpuacct/job", tmp_path / "cpu,cpuacct"]
    assert quota_stops(folders) == (4, 2.5)
    # of a step within a job: a limit of either stops it
    group(tmp_path / "job/step", "usage_usec 5\nnr_throttled 2\nthrottled_usec 500000\n")
    group(tmp_path / "job", "usage_usec 5\nnr_throttled 1\nthrottled_usec 250000\n")
    folders = group_folders("0::/job/step\n", tmp_path)
    assert folders == [tmp_path / "job/step", tmp_path / "job"] and quota_stops(folders) == (3, 0.75)
    # a container is told of groups that it does not see
    assert quota_stops(group_folders("0::/outside/of/it\n", tmp_path / "absent")) == (0, 0.0)


def test_time_counts_by_the_clock_but_for_hosts_that_share_a_machine() -> None:
    own, shared = Elapsed(shared=False), Elapsed(shared=True)
    time.sleep(0.2)
    assert own.read()["seconds"] >= 0.2
    told = shared.read()
    # unless the tests themselves have a quota
    assert told["seconds"] < 0.2 or told["quota_stops"]
    assert told["at_work"] < 1


def test_blocks_are_larger_than_the_caches(tmp_path: Path) -> None:
    for cpu, shared in enumerate(("0-1", "0-1", "2-3", "2-3")):
        for level, size in ((0, "32K"), (1, "1M"), (2, "2M"), (3, "32M")):
            folder = tmp_path / f"cpu{cpu}/cache/index{level}"
            folder.mkdir(parents=True)
            (folder / "size").write_text(size + "\n")
            (folder / "shared_cpu_list").write_text(shared + "\n")
    mib = 1 << 20
    assert last_caches(tmp_path) == 64 * mib and last_caches(tmp_path / "absent") == 0
    plenty = 1 << 40
    assert block_size(64 * mib, 4, plenty, 1) == 64 * mib  # all ranks together: four times the caches
    assert block_size(0, 4, plenty, 1) == 16 * mib and block_size(1 << 40, 4, plenty, 1) == 256 * mib
    # two blocks each, of a quarter of what is free, on four hosts that share it
    assert block_size(64 * mib, 4, 1024 * mib, 4) == 8 * mib


def test_the_best_round_of_each_core_counts() -> None:
    slow, fast = {**GOOD, "rate": 1e9, "late": 0.5}, {**GOOD, "rate": 4e9, "late": 0.01, "clock": None}
    told = of_host([[slow, fast], [fast, slow]])
    assert told["rates"] == [4e9, 4e9] and told["late"] == 0.01 and told["clock"] is None
    assert of_host([[slow], [fast]])["rates"] == [1e9, 4e9]


def test_cores_that_are_all_slow_by_their_clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What all hosts share, such as a power profile, no comparison of them shows."""
    slow = {"peak": 50e9}
    result = checked(monkeypatch, tmp_path, {name: slow for name in HEALTHY}, HEALTHY)
    (finding,) = result.findings
    assert (finding.kind, finding.where, finding.severity) == (Kind.SLOW_HOST, "cluster", Severity.FAIL)
    assert "host a, host b, host c, host d: products of matrices reach 10% of what" in finding.text
    # other programs have nine tenths of the time: that is another fault
    busy = {**slow, "at_work": 0.1}
    assert checked(monkeypatch, tmp_path, {name: busy for name in HEALTHY}, HEALTHY).findings == []
    unknown = checked(monkeypatch, tmp_path, {name: {"peak": None} for name in HEALTHY}, HEALTHY)
    assert unknown.findings == []
    assert unknown.not_judged["host.compute.share"].endswith("no clock of the cores of a, b, c, d")


def test_memory_that_is_slow_everywhere_by_its_channels(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cores: dict[str, dict[str, Any]] = {name: {} for name in HEALTHY}
    result = checked(monkeypatch, tmp_path, cores, HEALTHY, peaks=[400e9] * 4)
    (finding,) = result.findings
    assert (finding.kind, finding.where, finding.hosts) == (Kind.SLOW_MEMORY, "cluster", ())
    assert "reach 5% of what the hardware can do" in finding.text
    unknown = checked(monkeypatch, tmp_path, cores, HEALTHY, peaks=[None, 40e9, 40e9, 40e9])
    assert unknown.findings == [] and unknown.not_judged["host.memory.share"].endswith("channels of a")


def test_what_a_core_can_do() -> None:
    xeon = "model name\t: Xeon(R) Gold 6230 CPU @ 2.10GHz\ncpu MHz\t\t: 1000.0\nflags\t\t: avx avx2 fma\n"
    assert peak(xeon, "x86_64", None) == 2.1e9 * 16
    assert peak(xeon, "x86_64", 3.9e9) == 3.9e9 * 16
    virtual = "model name\t: AMD EPYC\ncpu MHz\t\t: 2445.4\nflags\t\t: sse2 avx\n"
    assert peak(virtual, "x86_64", None) == pytest.approx(2445.4e6 * 8)
    power9 = "cpu\t\t: POWER9, altivec supported\nclock\t\t: 3800.000000MHz\n"
    assert peak(power9, "ppc64le", None) == 3.8e9 * 8
    assert peak("Features\t: fp asimd\n", "aarch64", None) is None


def test_channels_of_memory(tmp_path: Path) -> None:
    """Two modules of a channel are one; AMD's driver tells rows of chips."""
    places = ["mc0/dimm0 channel 0 slot 0", "mc0/dimm1 channel 0 slot 1", "mc0/dimm2 channel 1 slot 0"]
    for line in [*places, "mc1/dimm0 csrow 0 channel 0"]:
        folder, _, location = line.partition(" ")
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "dimm_location").write_text(f"{location} \n")
        (tmp_path / folder / "dimm_mem_type").write_text("Registered-DDR4\n")
    assert memory_peak(tmp_path) == 3 * 12.8e9
    (tmp_path / "mc1/dimm0/dimm_mem_type").write_text("Unknown\n")
    assert memory_peak(tmp_path) == 2 * 12.8e9 and memory_peak(tmp_path / "mc9") is None
