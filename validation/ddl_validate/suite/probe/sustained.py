"""Cores, memory and the exchange between all ranks, in turns for minutes: what they do at first, and at last.

The other probes measure for seconds, and the best of several rounds: what gets hot after a minute looks well
there. Here each rank computes, copies and reduces again and again until the time is over.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

_FIRST = 60.0  # seconds, at the beginning and at the end; a third of a short run
_SHARES = 30  # slices of a run
_LONGEST = 1.0  # seconds of a slice
_ELEMENTS = 4 << 20


def window(times: Sequence[float], seconds: float) -> tuple[list[int], list[int]]:
    """Numbers of the cycles that belong to the beginning and to the end; times: at which each began."""
    length = min(_FIRST, seconds / 3)
    first = [number for number, start in enumerate(times) if start - times[0] <= length]
    last = [number for number, start in enumerate(times) if times[-1] - start <= length]
    return first, last


def at_work(measure: Callable[[], float]) -> float:
    """The rate while this process has a core: what other programs take is no decline."""
    used, start = time.process_time(), time.perf_counter()
    rate = measure()
    return rate / float(max((time.process_time() - used) / (time.perf_counter() - start), 0.01))


class Exchange:
    """All-reduces of all ranks, for as long as rank 0's clock says."""

    def __init__(self, seconds: float, end: float) -> None:
        import ddl
        import numpy as np

        self.ddl, self.np = ddl, np
        self.seconds, self.end = seconds, end
        self.data, self.state = np.zeros(_ELEMENTS, np.float32), np.zeros(1, np.int32)

    def measure(self) -> tuple[float, bool]:
        """Bytes of a buffer a second, and whether the run is over."""
        reductions, state, start = 0, 0, time.perf_counter()
        while not state:
            self.data = self.ddl.allreduce(self.data)
            reductions += 1
            now = time.perf_counter()
            mine = (1 if now - start > self.seconds else 0) + (2 if now > self.end else 0)
            news = self.np.array([mine if self.ddl.rank() == 0 else 0], self.np.int32)
            state = int(self.ddl.allreduce(news, op="max")[0])
        return 4 * _ELEMENTS * reductions / (time.perf_counter() - start), state >= 2


def of_host(ranks: list[list[dict[str, Any]]], cycles: list[int]) -> dict[str, float]:
    """What its ranks did in these cycles together: the median."""

    def middle(name: str) -> float:
        return float(statistics.median(sum(rounds[cycle][name] for rounds in ranks) for cycle in cycles))

    return {"compute": middle("rate"), "memory": middle("copied")}


def main(arguments: list[str] | None = None) -> int:
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS"):
        os.environ[name] = "1"
    from . import cores
    from .memory import Copying, common_block
    from .world import World, options

    settings = options(__doc__).parse_args(arguments)
    world = World(settings.ranks, settings.limit)
    part = min(_LONGEST, settings.seconds / _SHARES)
    copying = Copying(common_block(world), part, world.shared)
    computing = cores.Cores(part, world.shared)
    start = time.perf_counter()
    exchange = Exchange(part, start + settings.seconds)
    reports: list[dict[str, Any]] = []
    is_over = False
    while not is_over:
        at = time.perf_counter() - start
        report = computing.measure()
        report["rate"] /= max(report["at_work"], 0.01)
        copied = at_work(copying.measure)
        rate, is_over = exchange.measure()
        reports.append({**report, "at": at, "copied": copied, "exchanged": rate})
    collected = world.collect(reports)
    if collected is not None:
        first_rank = collected[0]
        first, last = window([report["at"] for report in first_rank], settings.seconds)
        hosts = []
        for host in range(world.hosts):
            ranks = collected[host * world.each : (host + 1) * world.each]
            reasons = cores.of_host([[rounds[cycle] for cycle in last] for rounds in ranks])
            hosts.append({"first": of_host(ranks, first), "last": of_host(ranks, last), "reasons": reasons})
        exchanged = [
            statistics.median(first_rank[cycle]["exchanged"] for cycle in cycles) for cycles in (first, last)
        ]
        result = {
            "hosts": hosts,
            "exchanged": exchanged,
            "cycles": len(first_rank),
            "machines": world.machines,
        }
        world.print_result(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
