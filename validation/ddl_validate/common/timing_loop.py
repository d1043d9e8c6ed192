"""The timing loop of allreduce/programs/timing.c in Python: same arguments, same lines, same exit codes.

It needs the standard library alone: bench_gloo.py runs it in the Python of a peer's environment.
"""

from __future__ import annotations

import json
import platform
import resource
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from .binding import core_list

#: Values of a buffer repeat after so many.
PERIOD = 1024
#: A repetition is as many calls as make up so many bytes, at least one, at most MOST_CALLS.
BYTES_A_REPETITION, MOST_CALLS = 1 << 20, 64
#: A peer so many times slower than the fastest one ends before a size that would take it so many seconds.
ABANDONED, ABANDONED_SECONDS = 10, 60
#: Exit codes.
WRONG, FAILED = 3, 4
#: Bytes of a text that each rank sends, and of what it says of an error.
_TEXT, _MESSAGE = 512, 1024

#: The slowest rank's seconds of a call; processor seconds of all ranks in user mode and in the kernel.
Sample = tuple[float, float, float]
#: A wrong element: its index, its value, and the right one.
WrongElement = tuple[int, float, float]


class Stop(Exception):
    """A wrong sum or a failed call that was already reported; the argument is the exit code."""


def calls_of(size: int) -> int:
    """How many calls on `size` bytes are a repetition."""
    return min(max(BYTES_A_REPETITION // size, 1), MOST_CALLS)


def offset(rank: int, repetition: int) -> int:
    """Element i of a buffer is (i + offset) % PERIOD: sums of small integers are exact in any order."""
    return 3 * rank + 5 * repetition


class Loop(ABC):
    """Measures sizes on all ranks, and tells about them on rank 0.

    library: what is measured. failures: exceptions of a call that failed on a rank.
    """

    rank: int
    size: int
    library: str
    failures: ClassVar[tuple[type[Exception], ...]] = ()

    @abstractmethod
    def allocate(self, size: int, number: int) -> list[Any]:
        """So many buffers of so many bytes."""

    @abstractmethod
    def fill(self, buffer: Any, repetition: int) -> None:
        """Write this rank's values of a repetition."""

    @abstractmethod
    def allreduce(self, buffer: Any) -> None:
        """Sum float32 in place; the result is there on return."""

    @abstractmethod
    def first_wrong(self, buffer: Any, repetition: int) -> WrongElement | None:
        """The first element that is not the sum of all ranks' values."""

    @abstractmethod
    def barrier(self) -> None:
        """Wait for all ranks."""

    @abstractmethod
    def reduced(self, values: Sequence[float], op: str) -> list[float]:
        """The sum or the max of each value over all ranks."""

    @abstractmethod
    def gathered(self, block: bytes, room: int) -> list[bytes]:
        """At most `room` bytes of every rank, filled up with zeros."""

    def free(self) -> None:
        """Free the buffers."""
        return None

    def describe(self) -> dict[str, Any] | None:
        """What the library says of itself."""
        return None

    def run(self, requests: str, budget: str, least: str, most: str, warmups: str) -> int:
        """Measure with a program's arguments; its exit code."""
        hosts, cores = self._texts(platform.node()), self._texts(core_list())
        self._emit(event="start", library=self.library, hosts=hosts, cores=cores)
        try:
            numbers = [int(number) for number in warmups.split(",")]
            abandoned = self._measure_sizes(requests, float(budget), int(least), int(most), numbers)
        except Stop as stop:
            return int(stop.args[0])
        self._emit(event="end", description=self.describe(), abandoned=abandoned)
        return 0

    def _emit(self, **event: Any) -> None:
        if self.rank == 0:
            print("@ddl-bench", json.dumps(event), flush=True)

    def _texts(self, text: str) -> list[str]:
        """A text of each rank."""
        blocks = self.gathered(text.encode()[:_TEXT], _TEXT)
        return [block.rstrip(b"\0").decode(errors="replace") for block in blocks]

    def _measure_sizes(
        self, requests: str, budget: float, least: int, most: int, warmups: Sequence[int]
    ) -> bool:
        """Measure SIZE[:BEST],… and print every size; whether the larger ones were abandoned.

        warmups: of each size, the last one of all further sizes.
        """
        ratio = rate = 0.0
        for number, request in enumerate(requests.split(",")):
            word, _, reference = request.partition(":")
            size = int(word)
            if ratio > ABANDONED and rate * size > ABANDONED_SECONDS:
                return True
            samples = self._measure(size, budget, least, most, warmups[min(number, len(warmups) - 1)])
            self._emit(event="size", bytes=size, **samples)
            best = min(samples["seconds"])
            ratio = best / float(reference) if reference and float(reference) else 0.0
            rate = best / size
        return False

    def _measure(
        self, size: int, budget: float, least: int, most: int, warmups: int
    ) -> dict[str, list[float]]:
        """Repeat until the budget is spent; the samples as the event `size` has them."""
        buffers = self.allocate(size, calls_of(size))
        warmup = [self._repeat(buffers, size, number)[0] for number in range(warmups)]
        samples: list[Sample] = []
        start, elapsed = time.perf_counter(), 0.0
        while len(samples) < most and (len(samples) < least or elapsed < budget):
            samples.append(self._repeat(buffers, size, warmups + len(samples)))
            # all ranks must agree on the end
            (elapsed,) = self.reduced([time.perf_counter() - start], "max")
        self.free()
        seconds, user, system = (list(column) for column in zip(*samples, strict=True))
        return {"warmup": warmup, "seconds": seconds, "user": user, "system": system}

    def _repeat(self, buffers: list[Any], size: int, number: int) -> Sample:
        calls = list(enumerate(buffers, number * len(buffers)))
        for repetition, buffer in calls:
            self.fill(buffer, repetition)
        self.barrier()
        failure = None
        before = resource.getrusage(resource.RUSAGE_SELF)
        start = time.perf_counter()
        try:
            for buffer in buffers:
                self.allreduce(buffer)
        except self.failures as error:
            failure = {"code": 1, "text": str(error)[: _MESSAGE * 3 // 4]}
        seconds = time.perf_counter() - start
        after = resource.getrusage(resource.RUSAGE_SELF)
        self._stop_after("failed", FAILED, failure, size)
        errors = (self.first_wrong(buffer, repetition) for repetition, buffer in calls)
        wrong = next((error for error in errors if error), None)
        event = wrong and {"index": wrong[0], "got": f"{wrong[1]:.9g}", "expected": f"{wrong[2]:.9g}"}
        self._stop_after("wrong", WRONG, event, size)
        (slowest,) = self.reduced([seconds], "max")
        used = [after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime]
        user, system = self.reduced(used, "sum")
        return slowest / len(buffers), user / len(buffers), system / len(buffers)

    def _stop_after(self, event: str, code: int, fields: dict[str, Any] | None, size: int) -> None:
        """Tell of the first rank that has something to say, if there is one, and Stop."""
        (place,) = self.reduced([float(-self.rank if fields else -self.size)], "max")
        first = int(-place)
        if first < self.size:
            message = self.gathered(json.dumps(fields).encode(), _MESSAGE)[first].rstrip(b"\0")
            self._emit(event=event, bytes=size, rank=first, **json.loads(message))
            raise Stop(code)
