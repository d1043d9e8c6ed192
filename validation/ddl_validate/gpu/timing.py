"""The timing loop of ddl-bench on memory of a GPU: `python -m ddl_validate.gpu.timing PEER ARGUMENTS`.

PEER is ddl or nccl; the arguments, lines and exit codes are those of allreduce/programs/timing.h. Ranks meet,
and agree on times, by DDL in the host's memory, for both peers alike; what is timed is the peer alone. Each
call is complete before the next one begins.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import sys
import time
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from ..common.binding import bind, core_list
from ..common.timing_loop import (
    FAILED,
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
from .ddl_library import Ddl
from .driver import Device, Driver, Event, Stream, wait_until
from .errors import GpuError
from .nccl import ID_BYTES, Nccl

TEXT = 256
_LIMIT_SECONDS = 300.0

Floats = npt.NDArray[np.float32]
#: Seconds of a size; the least and the largest number of repetitions.
Effort = tuple[float, int, int]


class Subject(ABC):
    """What is timed. Every rank has a device of its own, or shares one where the peer can."""

    library: str

    @abstractmethod
    def allreduce(self, address: int, count: int) -> None:
        """Sum float32 in place; the result is there on return."""

    def describe(self) -> dict[str, Any] | None:
        return None

    def close(self) -> None:
        return None


class OfDdl(Subject):
    def __init__(self, ddl: Ddl) -> None:
        self._ddl = ddl
        self.library = f"DDL {ddl.version}"

    def allreduce(self, address: int, count: int) -> None:
        self._ddl.allreduce(address, count)

    def describe(self) -> dict[str, Any]:
        return self._ddl.describe()


class OfNccl(Subject):
    """NCCL alone, on a stream of its own."""

    def __init__(self, ddl: Ddl, device: Device) -> None:
        self._nccl = Nccl()
        identifier = self._nccl.unique_id() if ddl.rank == 0 else b""
        self._nccl.connect(ddl.gather_bytes(identifier, ID_BYTES)[0], ddl.rank, ddl.size)
        self._stream: Stream = device.stream()
        self._event: Event = device.event()
        self.library = f"NCCL {self._nccl.version}"

    def allreduce(self, address: int, count: int) -> None:
        self._nccl.allreduce(address, count, self._stream.handle)
        self._event.record(self._stream)
        wait_until(self._event.done, _LIMIT_SECONDS, "an all-reduce of NCCL")

    def close(self) -> None:
        self._nccl.close()


def numbers(rank: int, repetition: int) -> Floats:
    return ((np.arange(PERIOD) + offset(rank, repetition)) % PERIOD).astype(np.float32)


class Loop:
    """Measures sizes, and tells about them on rank 0."""

    def __init__(self, ddl: Ddl, device: Device, subject: Subject) -> None:
        self.ddl, self.device, self.subject = ddl, device, subject
        self._stream = device.stream()

    def emit(self, **event: Any) -> None:
        if self.ddl.rank == 0:
            print("@ddl-bench", json.dumps(event), flush=True)

    def texts(self, text: str) -> list[str]:
        """A text of each rank."""
        texts = self.ddl.gather_bytes(text.encode()[:TEXT].ljust(TEXT, b"\0"), TEXT)
        return [buffer.rstrip(b"\0").decode(errors="replace") for buffer in texts]

    def _lowest(self, is_true: bool) -> int:
        """The lowest rank for which something is true, or how many there are."""
        (lowest,) = self.ddl.highest(float(-self.ddl.rank if is_true else -self.ddl.size))
        return int(-lowest)

    def _tell(self, source: int, fields: dict[str, Any], event: str, size: int) -> None:
        """Say what one rank knows, on rank 0."""
        message = self.ddl.gather_bytes(json.dumps(fields).encode().ljust(4 * TEXT), 4 * TEXT)[source]
        self.emit(event=event, bytes=size, rank=source, **json.loads(message))

    def _repeat(
        self, addresses: list[int], host: npt.NDArray[np.uint8], size: int, repetition: int
    ) -> Sample:
        ddl, count = self.ddl, size // 4
        values = host.view(np.float32)
        first = repetition * len(addresses)
        for number, address in enumerate(addresses):
            values[:] = np.resize(numbers(ddl.rank, first + number), count)
            self._stream.to_device(address, host)
            self._stream.synchronize(_LIMIT_SECONDS)
        ddl.barrier()
        failure = ""
        before = resource.getrusage(resource.RUSAGE_SELF)
        begun = time.perf_counter()
        try:
            for address in addresses:
                self.subject.allreduce(address, count)
        except GpuError as error:
            failure = str(error)
        seconds = (time.perf_counter() - begun) / len(addresses)
        after = resource.getrusage(resource.RUSAGE_SELF)
        failed = self._lowest(bool(failure))
        if failed < ddl.size:
            self._tell(failed, {"code": 1, "text": failure[: 3 * TEXT]}, "failed", size)
            raise Stop(FAILED)
        self._check(addresses, host, size, first)
        (slowest,) = ddl.highest(seconds)
        used = ddl.total(after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime)
        return slowest, used[0] / len(addresses), used[1] / len(addresses)

    def _check(self, addresses: list[int], host: npt.NDArray[np.uint8], size: int, first: int) -> None:
        """Compare every element of every call; Stop after telling of the first wrong one."""
        values = host.view(np.float32)
        wrong: dict[str, Any] = {}
        for number, address in enumerate(addresses):
            self._stream.to_host(host, address)
            self._stream.synchronize(_LIMIT_SECONDS)
            right = np.asarray(
                sum((numbers(rank, first + number) for rank in range(self.ddl.size)), np.zeros(PERIOD)),
                np.float32,
            )
            # written so that a NaN is wrong
            differs = ~(values == np.resize(right, len(values)))
            if differs.any():
                index = int(np.argmax(differs))
                wrong = wrong_event(index, float(values[index]), float(right[index % PERIOD]))
                break
        bad = self._lowest(bool(wrong))
        if bad < self.ddl.size:
            self._tell(bad, wrong, "wrong", size)
            raise Stop(WRONG)

    def slowest(self, number: float) -> float:
        """The largest value of all ranks."""
        (largest,) = self.ddl.highest(number)
        return largest

    def measure(
        self, size: int, budget: float, least: int, most: int, warmups: int
    ) -> dict[str, list[float]]:
        """The samples of a size."""
        calls = calls_of(size)
        # apart, as buffers of a program are
        stride = -(-size // 256) * 256
        buffer = self.device.allocate(calls * stride)
        addresses = [buffer.address + number * stride for number in range(calls)]
        host = self.device.pinned(size)
        samples = measure(
            lambda number: self._repeat(addresses, host, size, number),
            self.slowest,
            budget,
            least,
            most,
            warmups,
        )
        buffer.free()
        self.device.unpin(host)
        return samples


def run(peer: str, requests: str, warmups: int, effort: Effort) -> int:
    ddl = Ddl()
    ddl.init()
    driver = Driver()
    gpus = driver.device_count
    if gpus < 1:
        raise GpuError("the driver shows no GPU")
    device = driver.open(ddl.local_rank % gpus)
    subject: Subject = OfNccl(ddl, device) if peer == "nccl" else OfDdl(ddl)
    loop = Loop(ddl, device, subject)
    loop.emit(
        event="start",
        library=f"{subject.library} on {driver.device_name(device.ordinal)}",
        hosts=loop.texts(platform.node()),
        cores=loop.texts(core_list()),
    )
    try:
        abandoned = measure_sizes(
            requests, [warmups], loop.emit, lambda size, warmups: loop.measure(size, *effort, warmups)
        )
    except Stop as stop:
        return int(stop.args[0])
    loop.emit(event="end", description=subject.describe(), abandoned=abandoned)
    subject.close()
    ddl.finalize()
    return 0


def main(arguments: list[str]) -> int:
    peer, requests, budget, least, most, warmups = arguments
    bind(int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("PMIX_RANK") or "0"))

    try:
        return run(peer, requests, int(warmups), (float(budget), int(least), int(most)))
    except GpuError as error:
        print(error, file=sys.stderr, flush=True)
        # the other ranks may wait for this one
        os._exit(FAILED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
