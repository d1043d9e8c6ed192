"""The timing loop of allreduce/programs/timing.c in Python: its constants, when it stops, what it prints.

It needs the standard library alone: bench_gloo.py runs it in the Python of a peer's environment.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

#: Values of a buffer repeat after so many.
PERIOD = 1024
#: A repetition is as many calls as make up so many bytes, at least one, at most MOST_CALLS.
BYTES_A_REPETITION, MOST_CALLS = 1 << 20, 64
#: A peer so many times slower than the fastest one ends before a size that would take it so many seconds.
ABANDONED, ABANDONED_SECONDS = 10, 60
#: Exit codes.
WRONG, FAILED = 3, 4

#: The slowest rank's seconds of a call; processor seconds of all ranks in user mode and in the kernel.
Sample = tuple[float, float, float]


class Stop(Exception):
    """A wrong sum or a failed call that was already reported; the argument is the exit code."""


def calls_of(size: int) -> int:
    """How many calls on `size` bytes are a repetition."""
    return min(max(BYTES_A_REPETITION // size, 1), MOST_CALLS)


def offset(rank: int, repetition: int) -> int:
    """Element i of a buffer is (i + offset) % PERIOD: sums of small integers are exact in any order."""
    return 3 * rank + 5 * repetition


def measure(
    repeat: Callable[[int], Sample],
    slowest: Callable[[float], float],
    budget: float,
    least: int,
    most: int,
    warmups: int,
) -> dict[str, list[float]]:
    """Repeat until the budget is spent; the samples as the event `size` has them.

    repeat: makes the repetition of a number. slowest: the largest value of all ranks, so that all agree on
    the end.
    """
    warmup = [repeat(number)[0] for number in range(warmups)]
    samples: list[Sample] = []
    start, elapsed = time.perf_counter(), 0.0
    while len(samples) < most and (len(samples) < least or elapsed < budget):
        samples.append(repeat(warmups + len(samples)))
        elapsed = slowest(time.perf_counter() - start)
    seconds, user, system = (list(column) for column in zip(*samples, strict=True))
    return {"warmup": warmup, "seconds": seconds, "user": user, "system": system}


def measure_sizes(
    requests: str,
    warmups: Sequence[int],
    emit: Callable[..., None],
    measure_size: Callable[[int, int], dict[str, list[float]]],
) -> bool:
    """Measure SIZE[:BEST],… and print every size; whether the larger ones were abandoned.

    warmups: of each size, the last one of all further sizes. measure_size: measures a size after so many.
    """
    ratio = rate = 0.0
    for number, request in enumerate(requests.split(",")):
        size, _, reference = request.partition(":")
        if ratio > ABANDONED and rate * int(size) > ABANDONED_SECONDS:
            return True
        samples = measure_size(int(size), warmups[min(number, len(warmups) - 1)])
        emit(event="size", bytes=int(size), **samples)
        best = min(samples["seconds"])
        ratio = best / float(reference) if reference and float(reference) else 0.0
        rate = best / int(size)
    return False


def wrong_event(index: int, value: float, expected: float) -> dict[str, Any]:
    """What the event `wrong` says of an element."""
    return {"index": index, "got": f"{value:.9g}", "expected": f"{expected:.9g}"}
