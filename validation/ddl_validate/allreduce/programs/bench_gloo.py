"""The timing loop of timing.c for torch.distributed with Gloo: same arguments, same lines, same exit codes.

Run by mpirun on every rank with MASTER_ADDR and MASTER_PORT; needs torch, and nothing of the benchmark.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

PERIOD, TEXT = 1024, 512
ABANDONED, ABANDONED_SECONDS = 10, 60
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


def repeat(calls: list[torch.Tensor], repetition: int, began: float) -> tuple[list[float], float]:
    """The slowest rank's time of a call with the processor seconds of a call in user mode and in the kernel,
    all threads of all ranks together; and the longest time since ``began``."""
    rank, size = dist.get_rank(), dist.get_world_size()
    first = repetition * len(calls)
    for i, values in enumerate(calls):
        fill(values, period(rank, first + i))
    dist.barrier()
    before = resource.getrusage(resource.RUSAGE_SELF)
    start = time.perf_counter()
    for values in calls:
        dist.all_reduce(values)
    seconds = (time.perf_counter() - start) / len(calls)
    after = resource.getrusage(resource.RUSAGE_SELF)
    used = torch.tensor(
        [after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime], dtype=torch.float64
    )
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
    dist.all_reduce(used)
    return [slowest, *(float(one) / len(calls) for one in used)], elapsed


def measure(size: int, budget: float, least: int, most: int, warmups: int) -> float:
    """Tell the times of a size; the shortest."""
    number = min(max(BYTES_A_REPETITION // size, 1), MOST_CALLS)
    calls = [torch.zeros(size // 4, dtype=torch.float32) for _ in range(number)]
    began = time.perf_counter()
    warmup = [repeat(calls, repetition, began)[0][0] for repetition in range(warmups)]
    samples: list[list[float]] = []
    began, elapsed = time.perf_counter(), 0.0
    while len(samples) < most and (len(samples) < least or elapsed < budget):
        sample, elapsed = repeat(calls, warmups + len(samples), began)
        samples.append(sample)
    columns = list(map(list, zip(*samples, strict=True)))
    seconds, user, system = columns
    emit(event="size", bytes=size, warmup=warmup, seconds=seconds, user=user, system=system)
    return float(min(seconds))


def core_of(number: int, what: str) -> int:
    """A number in a file of a CPU's folder in /sys, as in binding.c."""
    try:
        return int(Path(f"/sys/devices/system/cpu/cpu{number}/topology/{what}").read_text())
    except (OSError, ValueError):
        return 0


def bind() -> None:
    """What timing_bind() in binding.c does. Threads that exist already are bound as well."""
    places = os.environ.get("DDL_BENCH_PLACES")
    if not places:
        return
    index, ranks = map(int, places.split(",")[int(os.environ["OMPI_COMM_WORLD_RANK"])].split("/"))
    cores = sorted(
        os.sched_getaffinity(0),
        key=lambda core: (core_of(core, "physical_package_id"), core_of(core, "core_id"), core),
    )
    if ranks <= len(cores):
        own = cores[index * len(cores) // ranks : (index + 1) * len(cores) // ranks]
        for thread in os.listdir("/proc/self/task"):
            os.sched_setaffinity(int(thread), own)


def core_list() -> str:
    """The cores that this process may run on, as ranges: 0-3,8."""
    ranges: list[list[int]] = []
    for core in sorted(os.sched_getaffinity(0)):
        if ranges and ranges[-1][1] == core - 1:
            ranges[-1][1] = core
        else:
            ranges.append([core, core])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def gathered(text: str) -> list[str]:
    """A text of each rank. By bytes: exchanging objects would need numpy."""
    own = text.encode()[:TEXT]
    found = [torch.zeros(TEXT, dtype=torch.uint8) for _ in range(dist.get_world_size())]
    dist.all_gather(found, torch.tensor(list(own.ljust(TEXT, b"\0")), dtype=torch.uint8))
    return [bytes(one.tolist()).rstrip(b"\0").decode(errors="replace") for one in found]


def main() -> int:
    sizes, budget, least, most, warmups = sys.argv[1:]
    bind()
    torch.set_num_threads(1)
    rank, size = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
    dist.init_process_group("gloo", rank=rank, world_size=size, timeout=LIMIT)
    hosts, cores = gathered(platform.node()), gathered(core_list())
    emit(event="start", library=f"Gloo of torch {torch.__version__}", hosts=hosts, cores=cores)
    ratio, rate, abandoned = 0.0, 0.0, False
    try:
        before = [int(word) for word in warmups.split(",")]
        for i, word in enumerate(sizes.split(",")):
            number, _, known = word.partition(":")
            if ratio > ABANDONED and rate * int(number) > ABANDONED_SECONDS:
                abandoned = True
                break
            best = measure(int(number), float(budget), int(least), int(most), before[min(i, len(before) - 1)])
            ratio = best / float(known) if known and float(known) else 0.0
            rate = best / int(number)
    except Failure as failure:
        return int(failure.args[0])
    emit(event="end", description=None, abandoned=abandoned)
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
