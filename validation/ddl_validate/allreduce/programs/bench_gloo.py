"""The timing loop of timing.c for torch.distributed with Gloo.

Run by mpirun on every rank with MASTER_ADDR and MASTER_PORT, in the Python of a peer's environment: it needs
torch, and of ddl_validate only modules that need the standard library alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

# The modules beside this file, also where the environment has others; all else is the environment's own.
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from ddl_validate.common.binding import bind
from ddl_validate.common.timing_loop import PERIOD, Loop, WrongElement, offset

del sys.path[0]
LIMIT = timedelta(seconds=300)


def numbers(rank: int, repetition: int) -> torch.Tensor:
    return ((torch.arange(PERIOD) + offset(rank, repetition)) % PERIOD).to(torch.float32)


class GlooLoop(Loop):
    """all_reduce of torch.distributed, on tensors."""

    library = f"Gloo of torch {torch.__version__}"

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    def allocate(self, size: int, number: int) -> list[torch.Tensor]:
        return [torch.zeros(size // 4, dtype=torch.float32) for _ in range(number)]

    def fill(self, buffer: torch.Tensor, repetition: int) -> None:
        period, whole = numbers(self.rank, repetition), len(buffer) // PERIOD * PERIOD
        buffer[:whole].view(-1, PERIOD).copy_(period.expand(whole // PERIOD, PERIOD))
        buffer[whole:].copy_(period[: len(buffer) - whole])

    def allreduce(self, buffer: torch.Tensor) -> None:
        dist.all_reduce(buffer)

    def first_wrong(self, buffer: torch.Tensor, repetition: int) -> WrongElement | None:
        right = sum((numbers(rank, repetition) for rank in range(self.size)), torch.zeros(PERIOD))
        whole = len(buffer) // PERIOD * PERIOD
        parts = (buffer[:whole].view(-1, PERIOD) != right, buffer[whole:] != right[: len(buffer) - whole])
        for begin, wrong in zip((0, whole), parts, strict=True):
            if bool(wrong.any()):
                index = begin + int(wrong.flatten().to(torch.uint8).argmax())
                return index, float(buffer[index]), float(right[index % PERIOD])
        return None

    def barrier(self) -> None:
        dist.barrier()

    def reduced(self, values: Sequence[float], op: str) -> list[float]:
        numbers = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(numbers, op=dist.ReduceOp.MAX if op == "max" else dist.ReduceOp.SUM)
        return [float(number) for number in numbers]

    def gathered(self, block: bytes, room: int) -> list[bytes]:
        """By bytes: exchanging objects would need numpy."""
        blocks = [torch.zeros(room, dtype=torch.uint8) for _ in range(self.size)]
        dist.all_gather(blocks, torch.tensor(list(block[:room].ljust(room, b"\0")), dtype=torch.uint8))
        return [bytes(buffer.tolist()) for buffer in blocks]


def main() -> int:
    rank, size = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
    bind(rank)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=size, timeout=LIMIT)
    code = GlooLoop(rank, size).run(*sys.argv[1:])
    if code == 0:
        dist.destroy_process_group()
    return code


if __name__ == "__main__":
    sys.exit(main())
