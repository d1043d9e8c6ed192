"""The timing loop of timing.c for torch.distributed with Gloo: same arguments, same lines, same exit codes.

Run by mpirun on every rank with MASTER_ADDR and MASTER_PORT; needs torch, and nothing of the benchmark.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

PERIOD, NAME = 1024, 256
CUT_SECONDS, HOPELESS, ABANDONED, ABANDONED_SECONDS = 0.5, 4, 10, 60
BYTES_A_REPETITION, MOST_CALLS = 1 << 20, 64
LIMIT = timedelta(seconds=300)


def emit(**event: Any) -> None:
    if dist.get_rank() == 0:
        print("@ddl-bench", json.dumps(event), flush=True)


def period(rank: int, repetition: int) -> torch.Tensor:
    """Small whole numbers, as in timing.c."""
    return ((torch.arange(PERIOD) + 3 * rank + 5 * repetition) % PERIOD).to(torch.float32)


def fill(values: torch.Tensor, part: torch.Tensor) -> None:
    whole = len(values) // PERIOD * PERIOD
    values[:whole].view(-1, PERIOD).copy_(part.expand(whole // PERIOD, PERIOD))
    values[whole:].copy_(part[: len(values) - whole])


def first_wrong(values: torch.Tensor, part: torch.Tensor) -> int:
    """Index of the first wrong value, or their number."""
    whole = len(values) // PERIOD * PERIOD
    wrong = values[:whole].view(-1, PERIOD) != part
    if bool(wrong.any()):
        return int(wrong.flatten().to(torch.uint8).argmax())
    rest = values[whole:] != part[: len(values) - whole]
    return whole + int(rest.to(torch.uint8).argmax()) if bool(rest.any()) else len(values)


class Failure(Exception):
    """A wrong sum or a failed call, told already; the exit code."""


def highest(*numbers: float) -> list[float]:
    both = torch.tensor(numbers, dtype=torch.float64)
    dist.all_reduce(both, op=dist.ReduceOp.MAX)
    return [float(number) for number in both]


def repeat(calls: list[torch.Tensor], repetition: int, began: float) -> tuple[float, float]:
    """The slowest rank's time of a call, and the longest time since ``began``."""
    rank, size = dist.get_rank(), dist.get_world_size()
    first = repetition * len(calls)
    for i, values in enumerate(calls):
        fill(values, period(rank, first + i))
    dist.barrier()
    start = time.perf_counter()
    for values in calls:
        dist.all_reduce(values)
    seconds = (time.perf_counter() - start) / len(calls)
    report = [-1.0, -1.0, 0.0, 0.0]
    for i, values in enumerate(calls):
        expected = sum((period(other, first + i) for other in range(size)), torch.zeros(PERIOD))
        index = first_wrong(values, expected)
        if index < len(values):
            report = [float(rank), float(index), float(values[index]), float(expected[index % PERIOD])]
            break
    all_reports = [torch.zeros(4, dtype=torch.float64) for _ in range(size)]
    dist.all_gather(all_reports, torch.tensor(report, dtype=torch.float64))
    for one in all_reports:
        if one[0] >= 0:
            emit(
                event="wrong",
                bytes=4 * len(calls[0]),
                rank=int(one[0]),
                index=int(one[1]),
                got=f"{float(one[2]):.9g}",
                expected=f"{float(one[3]):.9g}",
            )
            raise Failure(3)
    slowest, elapsed = highest(seconds, time.perf_counter() - began)
    return slowest, elapsed


def measure(size: int, enough: float, budget: float, least: int, most: int, warmups: int) -> float:
    """Tell the times of a size; the shortest."""
    number = min(max(BYTES_A_REPETITION // size, 1), MOST_CALLS)
    calls = [torch.zeros(size // 4, dtype=torch.float32) for _ in range(number)]
    warmup: list[float] = []
    elapsed = 0.0
    began = time.perf_counter()
    cut = False
    while not cut and len(warmup) < warmups:
        seconds, elapsed = repeat(calls, len(warmup), began)
        warmup.append(seconds)
        cut = 0 < HOPELESS * enough < warmup[0] and warmup[0] > 2 * CUT_SECONDS
    samples: list[float] = []
    if cut:
        samples.append(warmup[0])
    began, elapsed = time.perf_counter(), 0.0
    while not cut and len(samples) < most and (len(samples) < least or elapsed < budget):
        seconds, elapsed = repeat(calls, warmups + len(samples), began)
        samples.append(seconds)
        cut = 0 < enough < seconds and seconds > CUT_SECONDS and len(samples) < least
    emit(event="size", bytes=size, warmup=warmup, seconds=samples, cut=cut)
    return min(samples)


def host_names() -> list[str]:
    """Name of each rank's host. By bytes: exchanging objects would need numpy."""
    own = platform.node().encode()[:NAME]
    names = [torch.zeros(NAME, dtype=torch.uint8) for _ in range(dist.get_world_size())]
    dist.all_gather(names, torch.tensor(list(own.ljust(NAME, b"\0")), dtype=torch.uint8))
    return [bytes(name.tolist()).rstrip(b"\0").decode(errors="replace") for name in names]


def main() -> int:
    sizes, budget, least, most, warmups = sys.argv[1:]
    torch.set_num_threads(1)
    rank, size = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
    dist.init_process_group("gloo", rank=rank, world_size=size, timeout=LIMIT)
    emit(event="start", library=f"Gloo of torch {torch.__version__}", hosts=host_names())
    ratio, rate, abandoned = 0.0, 0.0, False
    try:
        for word in sizes.split(","):
            number, _, enough = word.partition(":")
            if ratio > ABANDONED and rate * int(number) > ABANDONED_SECONDS:
                abandoned = True
                break
            best = measure(
                int(number), float(enough or 0), float(budget), int(least), int(most), int(warmups)
            )
            ratio = best / float(enough) if enough and float(enough) else 0.0
            rate = best / int(number)
    except Failure as failure:
        return int(failure.args[0])
    emit(event="end", description=None, abandoned=abandoned)
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
