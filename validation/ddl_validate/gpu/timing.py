"""The timing loop of ddl-bench on memory of a GPU: `python -m ddl_validate.gpu.timing PEER ARGUMENTS`.

PEER is ddl or nccl; the arguments, lines and exit codes are those of allreduce/programs/timing.h. Ranks meet,
and agree on times, by DDL in the host's memory, for both peers alike; what is timed is the peer alone. Each
call is complete before the next one begins.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from ..common.binding import bind
from ..common.timing_loop import FAILED, Loop, WrongElement
from .arithmetic import sum_of_whole_numbers, whole_numbers
from .ddl_library import Ddl
from .driver import Driver, wait_until
from .errors import GpuError
from .nccl import ID_BYTES, Nccl
from .rank_report import current_rank

_LIMIT_SECONDS = 300.0


class OfDdl(Loop):
    """DDL, on addresses of a GPU's memory. Every rank has a device of its own, or shares one."""

    failures: ClassVar[tuple[type[Exception], ...]] = (GpuError,)

    def __init__(self, ddl: Ddl) -> None:
        self._ddl, self.rank, self.size = ddl, ddl.rank, ddl.size
        driver = Driver()
        gpus = driver.device_count
        if gpus < 1:
            raise GpuError("the driver shows no GPU")
        self._device = driver.open(ddl.local_rank % gpus)
        self._stream = self._device.stream()
        self._model = driver.device_name(self._device.ordinal)
        self.library = f"DDL {ddl.version} on {self._model}"

    def allocate(self, size: int, number: int) -> list[int]:
        # apart, as buffers of a program are
        stride = -(-size // 256) * 256
        self._buffer = self._device.allocate(number * stride)
        self._host = self._device.pinned(size)
        return [self._buffer.address + index * stride for index in range(number)]

    def free(self) -> None:
        self._buffer.free()
        self._device.unpin(self._host)

    def fill(self, buffer: int, repetition: int) -> None:
        values = self._host.view(np.float32)
        values[:] = whole_numbers(self.rank, repetition, len(values))
        self._stream.to_device(buffer, self._host)
        self._stream.synchronize(_LIMIT_SECONDS)

    def allreduce(self, buffer: int) -> None:
        self._ddl.allreduce(buffer, self._host.nbytes // 4)

    def first_wrong(self, buffer: int, repetition: int) -> WrongElement | None:
        self._stream.to_host(self._host, buffer)
        self._stream.synchronize(_LIMIT_SECONDS)
        values = self._host.view(np.float32)
        right = sum_of_whole_numbers(self.size, repetition, len(values))
        # written so that a NaN is wrong
        differs = ~(values == right)
        index = int(np.argmax(differs))
        return (index, float(values[index]), float(right[index])) if differs[index] else None

    def barrier(self) -> None:
        self._ddl.barrier()

    def reduced(self, values: Sequence[float], op: str) -> list[float]:
        return self._ddl.reduced(values, op)

    def gathered(self, block: bytes, room: int) -> list[bytes]:
        return self._ddl.gather_bytes(block, room)

    def describe(self) -> dict[str, Any] | None:
        return self._ddl.describe()

    def close(self) -> None:
        self._ddl.finalize()


class OfNccl(OfDdl):
    """NCCL alone, on a stream of its own."""

    def __init__(self, ddl: Ddl) -> None:
        super().__init__(ddl)
        self._nccl = Nccl()
        identifier = self._nccl.unique_id() if ddl.rank == 0 else b""
        self._nccl.connect(ddl.gather_bytes(identifier, ID_BYTES)[0], ddl.rank, ddl.size)
        self._calls, self._event = self._device.stream(), self._device.event()
        self.library = f"NCCL {self._nccl.version} on {self._model}"

    def allreduce(self, buffer: int) -> None:
        self._nccl.allreduce(buffer, self._host.nbytes // 4, self._calls.handle)
        self._event.record(self._calls)
        wait_until(self._event.done, _LIMIT_SECONDS, "an all-reduce of NCCL")

    def describe(self) -> None:
        return None

    def close(self) -> None:
        self._nccl.close()
        super().close()


def main(arguments: list[str]) -> int:
    peer, *others = arguments
    bind(current_rank())
    try:
        ddl = Ddl()
        ddl.init()
        loop = (OfNccl if peer == "nccl" else OfDdl)(ddl)
        code = loop.run(*others)
        if code == 0:
            loop.close()
        return code
    except GpuError as error:
        print(error, file=sys.stderr, flush=True)
        # the other ranks may wait for this one
        os._exit(FAILED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
