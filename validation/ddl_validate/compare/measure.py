"""One run of one way: what it printed, when, and what the links carried meanwhile."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from ..allreduce.place import Counters
from ..common.benchmark import TOTAL
from ..common.running import RunFailed, run_program

# What the programs print; ddlrun passes it on as it is.
_BEGIN = re.compile(r"^Running warm up$")
_ACCURACY = re.compile(r"^Accuracy @ 1 = ([0-9.]+)")
_GLOBAL_BATCH = re.compile(r"^Batch size: +([0-9]+) global$")
_OWN_BATCH = re.compile(r"^ +([0-9]+) per device$")
_ASYNCHRONOUS = re.compile(r"^Sync: +False$")
_STEPS = re.compile(r"^Num batches: +([0-9]+)$")
_TRAINED = re.compile(r"^trained images: ([0-9]+)$")


@dataclass
class Measured:
    """speed: images a second of all workers. accuracies: (seconds since the first step, accuracy) of each
    evaluation. images: trained by all workers. carried: bytes by link and direction, from the first step to
    the last; empty where links are not counted.
    """

    speed: float
    accuracies: list[tuple[float, float]]
    images: int
    carried: dict[str, int] = field(default_factory=dict)

    def seconds_to(self, accuracy: float) -> float | None:
        """Seconds until an evaluation first reached it; None where none did."""
        return next((seconds for seconds, value in self.accuracies if value >= accuracy), None)


class _Watch:
    """Reads the lines as they come."""

    def __init__(self, counters: Counters | None) -> None:
        self._counters = counters
        self._before: dict[str, int] = {}
        self.start: float | None = None
        self.speed: float | None = None
        self.accuracies: list[tuple[float, float]] = []
        self.carried: dict[str, int] = {}
        self._batch = self._own_batch = self._steps = self._trained = 0
        self._asynchronous = False

    def __call__(self, line: str, seconds: float) -> None:
        if self.start is None and _BEGIN.match(line):
            self.start = seconds
            self._before = self._counters() if self._counters else {}
        elif (match := _ACCURACY.match(line)) and self.start is not None:
            self.accuracies.append((seconds - self.start, float(match[1])))
        elif match := TOTAL.match(line):
            self.speed = float(match[1])
            if self._counters:
                after = self._counters()
                self.carried = {link: after[link] - count for link, count in self._before.items()}
        elif match := _GLOBAL_BATCH.match(line):
            self._batch = int(match[1])
        elif match := _OWN_BATCH.match(line):
            self._own_batch = int(match[1])
        elif _ASYNCHRONOUS.match(line):
            self._asynchronous = True
        elif match := _STEPS.match(line):
            self._steps = int(match[1])
        elif match := _TRAINED.match(line):
            self._trained = int(match[1])

    @property
    def images(self) -> int:
        # the steps of workers that do not meet are counted one by one
        batch = self._own_batch if self._asynchronous else self._batch
        return self._trained or batch * self._steps


def measure(command: list[str], title: str, log: Path, timeout: float, counters: Counters | None) -> Measured:
    """Run a way's command once. `timeout` in seconds. RunFailed: it failed, took longer, or did not say what
    it should; the text names the log.
    """
    watch = _Watch(counters)
    run_program(command, log, timeout, title, progress=watch)
    lacking = [
        line
        for line, printed in (
            ("'Running warm up'", watch.start is not None),
            ("'total images/sec'", watch.speed is not None),
            ("'Accuracy @ 1'", bool(watch.accuracies)),
            ("the number of images", watch.images > 0),
        )
        if not printed
    ]
    if lacking or watch.speed is None:
        raise RunFailed(f"{title} did not print {', '.join(lacking)}; log {log}")
    return Measured(watch.speed, watch.accuracies, watch.images, watch.carried)


def busiest(carried: dict[str, int], *, racks: int) -> tuple[str, int] | None:
    """The link and direction that carried most, of the slowest kind: rack uplinks where there are several
    racks, else hosts' links."""
    kind = "rack" if racks > 1 else ""
    of_kind = {link: count for link, count in carried.items() if link.startswith(kind)}
    return max(of_kind.items(), key=lambda pair: pair[1]) if of_kind else None
