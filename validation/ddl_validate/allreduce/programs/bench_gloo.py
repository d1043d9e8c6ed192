"""The timing loop of timing.c for torch.distributed with Gloo: same arguments, same lines, same exit codes.

Run by mpirun on every rank with MASTER_ADDR and MASTER_PORT, in the Python of a peer's environment: it needs
torch, and of ddl_validate only modules that need the standard library alone.
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

# behind the environment's own packages
sys.path.append(str(Path(__file__).resolve().parents[3]))
from ddl_validate.common.binding import bind, core_list
from ddl_validate.common.timing_loop import (
    PERIOD,
    WRONG,
    Sample,
    Stop,
    calls_of,
    measure,
    measure_sizes,
    offset,
    wrong_event,
)

TEXT = 512
LIMIT = timedelta(seconds=300)


def emit(**event: Any) -> None:
    if dist.get_rank() == 0:
        print("@ddl-bench", json.dumps(event), flush=True)


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


def slowest(number: float) -> float:
    """The largest value of all ranks."""
    largest = torch.tensor([number], dtype=torch.float64)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    return float(largest)


def numbers(rank: int, repetition: int) -> torch.Tensor:
    return ((torch.arange(PERIOD) + offset(rank, repetition)) % PERIOD).to(torch.float32)


def repeat(calls: list[torch.Tensor], repetition: int) -> Sample:
    rank, size = dist.get_rank(), dist.get_world_size()
    first = repetition * len(calls)
    for i, values in enumerate(calls):
        fill(values, numbers(rank, first + i))
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
        expected = sum((numbers(other, first + i) for other in range(size)), torch.zeros(PERIOD))
        index = first_wrong(values, expected)
        if index < len(values):
            report = [float(rank), float(index), float(values[index]), float(expected[index % PERIOD])]
            break
    all_reports = [torch.zeros(4, dtype=torch.float64) for _ in range(size)]
    dist.all_gather(all_reports, torch.tensor(report, dtype=torch.float64))
    for fields in all_reports:
        if fields[0] >= 0:
            emit(
                event="wrong",
                bytes=4 * len(calls[0]),
                rank=int(fields[0]),
                **wrong_event(int(fields[1]), float(fields[2]), float(fields[3])),
            )
            raise Stop(WRONG)
    dist.all_reduce(used)
    user, system = (float(spent) / len(calls) for spent in used)
    return slowest(seconds), user, system


def gathered(text: str) -> list[str]:
    """A text of each rank. By bytes: exchanging objects would need numpy."""
    encoded = text.encode()[:TEXT]
    texts = [torch.zeros(TEXT, dtype=torch.uint8) for _ in range(dist.get_world_size())]
    dist.all_gather(texts, torch.tensor(list(encoded.ljust(TEXT, b"\0")), dtype=torch.uint8))
    return [bytes(buffer.tolist()).rstrip(b"\0").decode(errors="replace") for buffer in texts]


def main() -> int:
    sizes, budget, least, most, warmups = sys.argv[1:]
    rank, size = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
    bind(rank)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=size, timeout=LIMIT)
    hosts, cores = gathered(platform.node()), gathered(core_list())
    emit(event="start", library=f"Gloo of torch {torch.__version__}", hosts=hosts, cores=cores)

    def measure_size(size: int, warmups: int) -> dict[str, list[float]]:
        calls = [torch.zeros(size // 4, dtype=torch.float32) for _ in range(calls_of(size))]
        return measure(
            lambda number: repeat(calls, number), slowest, float(budget), int(least), int(most), warmups
        )

    try:
        abandoned = measure_sizes(sizes, [int(number) for number in warmups.split(",")], emit, measure_size)
    except Stop as stop:
        return int(stop.args[0])
    emit(event="end", description=None, abandoned=abandoned)
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
