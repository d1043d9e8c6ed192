"""How fast each core computes, with all cores of its host at work, and what the kernel says about why.

A step is always the same product of small matrices, in the processor's caches. A core that is stopped, by a
quota or by other programs, is as slow for a training as one of a low clock: see elapsed.py. Other programs
come and go, so the best of several rounds is a core's rate.
"""

from __future__ import annotations

import os
import platform
import re
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from .elapsed import Elapsed

_ORDER = 96
_PRODUCTS = 4  # in a step
_OPERATIONS = 2 * _ORDER**3 * _PRODUCTS
_LATE = 1.5  # of the median step
_LEAST_ROUNDS, _MOST_ROUNDS = 2, 6
_CPUS = Path("/sys/devices/system/cpu")


def _number(path: Path) -> float | None:
    try:
        return float(path.read_text())
    except (OSError, ValueError):
        return None


def _clock(cpu: int) -> float | None:
    """Hertz, now."""
    khz = _number(_CPUS / f"cpu{cpu}/cpufreq/scaling_cur_freq")
    return khz * 1e3 if khz else None


def _highest_clock(cpu: int) -> float | None:
    khz = _number(_CPUS / f"cpu{cpu}/cpufreq/cpuinfo_max_freq")
    return khz * 1e3 if khz else None


def peak(cpuinfo: str, machine: str, highest_clock: float | None) -> float | None:
    """Operations a second of float64 that a core can do by its clock and its vectors; None without a clock.

    cpuinfo: the text of /proc/cpuinfo. highest_clock: hertz, where the kernel scales it.
    """

    def field(pattern: str) -> str:
        match = re.search(pattern, cpuinfo, re.MULTILINE)
        return match[1] if match else ""

    nominal, now = field(r"^model name\s*:.*@ ([0-9.]+)GHz"), field(r"^(?:cpu MHz|clock)\s*: ([0-9.]+)")
    clock = highest_clock or (float(nominal) * 1e9 if nominal else float(now or 0) * 1e6)
    flags = set(field(r"^flags\s*: (.*)$").split())
    a_cycle = 8  # two units of 128 bits that multiply and add: AVX, POWER9, Neoverse N1
    if {"avx2", "fma"} <= flags:
        a_cycle = 16
    elif machine == "x86_64" and "avx" not in flags:
        a_cycle = 4
    return clock * a_cycle or None


def _temperature() -> float | None:
    """The hottest sensor's degrees Celsius."""
    sensors = [*Path("/sys/class/hwmon").glob("hwmon*/temp*_input")]
    sensors += Path("/sys/class/thermal").glob("*/temp")
    read = [value / 1e3 for value in map(_number, sensors) if value is not None and 0 < value < 150e3]
    return max(read, default=None)


def _heat_stops(cpu: int) -> float:
    """How often the processor lowered its clock for heat."""
    return _number(_CPUS / f"cpu{cpu}/thermal_throttle/core_throttle_count") or 0.0


def _stolen(cpus: set[int]) -> float:
    """Seconds that a hypervisor gave to others."""
    ticks = 0
    for line in Path("/proc/stat").read_text().splitlines():
        fields = line.split()
        if fields and fields[0].startswith("cpu") and fields[0][3:].isdigit() and int(fields[0][3:]) in cpus:
            ticks += int(fields[8]) if len(fields) > 8 else 0
    return ticks / os.sysconf("SC_CLK_TCK")


class Cores:
    """The cores of this rank, and its computation."""

    def __init__(self, seconds: float, shared: bool) -> None:
        import numpy as np

        self.seconds = seconds
        self.start: Callable[[], Elapsed] = partial(Elapsed, shared)
        self.cpus = os.sched_getaffinity(0)
        self.multiply = np.matmul
        self.factor = np.random.default_rng(1).standard_normal((_ORDER, _ORDER))
        self.other_factor = np.random.default_rng(2).standard_normal((_ORDER, _ORDER))
        self.product = np.empty_like(self.factor)

    def step(self) -> None:
        for _ in range(_PRODUCTS):
            self.multiply(self.factor, self.other_factor, self.product)

    def measure(self) -> dict[str, Any]:
        self.step()
        cpu = min(self.cpus)
        stolen, hot, elapsed = _stolen(self.cpus), _heat_stops(cpu), self.start()
        steps: list[float] = []
        before = start = time.perf_counter()
        while before - start < self.seconds or len(steps) < 3:
            self.step()
            now = time.perf_counter()
            steps.append(now - before)
            before = now
        usage = elapsed.read()
        middle = statistics.median(steps)
        return {
            **usage,
            "rate": _OPERATIONS * len(steps) / usage["seconds"],
            "late": sum(step > _LATE * middle for step in steps) / len(steps),
            "longest": max(steps) / middle,
            "stolen": max(0.0, _stolen(self.cpus) - stolen) / (before - start),
            "clock": _clock(cpu),
            "highest_clock": _highest_clock(cpu),
            "heat_stops": _heat_stops(cpu) - hot,
            "temperature": _temperature(),
            "peak": peak(Path("/proc/cpuinfo").read_text(), platform.machine(), _highest_clock(cpu)),
        }


def of_host(ranks: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """A host's figures, of what its ranks measured in each round: a core's best round counts, and the least
    that disturbed it.
    """
    cores = [max(rounds, key=lambda report: float(report["rate"])) for rounds in ranks]

    def known_values(name: str) -> list[float]:
        return [core[name] for core in cores if core[name] is not None]

    return {
        "rates": [core["rate"] for core in cores],
        "late": statistics.fmean(min(report["late"] for report in rounds) for rounds in ranks),
        "longest": max(core["longest"] for core in cores),
        "at_work": statistics.fmean(core["at_work"] for core in cores),
        "quota_stops": max(core["quota_stops"] for core in cores),
        "quota_stood": max(core["quota_stood"] for core in cores),
        "stolen": statistics.fmean(core["stolen"] for core in cores),
        "clock": min(known_values("clock"), default=None),
        "highest_clock": max(known_values("highest_clock"), default=None),
        "heat_stops": sum(core["heat_stops"] for core in cores),
        "temperature": max(known_values("temperature"), default=None),
        "peak": max(known_values("peak"), default=None),
    }


def main(arguments: list[str] | None = None) -> int:
    # a rank is a core: the library of linear algebra must not start threads of its own
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS"):
        os.environ[name] = "1"
    from ..attribution import shortfalls
    from .world import World, options

    settings = options(__doc__).parse_args(arguments)
    world = World(settings.ranks, settings.limit)

    def hosts_of(rounds: list[list[Any]]) -> list[dict[str, Any]]:
        each = world.each
        return [of_host(rounds[host * each : (host + 1) * each]) for host in range(world.hosts)]

    def again(rounds: list[list[Any]]) -> bool:
        hosts = hosts_of(rounds)
        sums = {str(number): sum(host["rates"]) for number, host in enumerate(hosts)}
        slowest = {str(number): min(host["rates"]) for number, host in enumerate(hosts)}
        return bool(shortfalls(sums, settings.tolerance) or shortfalls(slowest, settings.tolerance))

    rounds = world.in_rounds(
        Cores(settings.seconds, world.shared).measure, again, _LEAST_ROUNDS, _MOST_ROUNDS
    )
    if world.rank == 0:
        world.print_result({"hosts": hosts_of(rounds), "rounds": len(rounds[0])})
    return 0


if __name__ == "__main__":
    sys.exit(main())
