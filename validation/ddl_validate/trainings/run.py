"""One run of one training: what it printed, when, and what the links carried meanwhile."""

from __future__ import annotations

import datetime
import json
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..allreduce.place import Counters
from ..common.running import RunFailed, run_program, tail_of
from .works import Kind

# What the programs print; ddlrun passes it on as it is, horovodrun marks the lines with the rank.
_LINES = {
    name: re.compile(r"^(?:\[[^]]*\]<stdout>: ?)?" + pattern)
    for name, pattern in {
        "begin": r"Running warm up$",
        "accuracy": r"Accuracy @ 1 = ([0-9.]+)",
        "learned": r"ranks ([0-9]+)  test accuracy ([0-9.]+)$",
        "total": r"total images/sec: ([0-9.]+)$",
        "global batch": r"Batch size: +([0-9]+) global$",
        "device batch": r" +([0-9]+) per device$",
        "asynchronous": r"Sync: +False$",
        "steps": r"Num batches: +([0-9]+)$",
        "images": r"trained images: ([0-9]+)$",
        "alone": r"exchange alone sec: ([0-9.]+)$",
        "efficiency": r"speed kept with exchange: ([0-9.]+) ",
        "result": r"(\{.*\})$",
    }.items()
}


@dataclass
class Sample:
    """One run.

    seconds:        of all of it
    time:           when it ended
    images_per_sec: of all ranks
    accuracies:     (seconds since the first step, accuracy) of each evaluation
    images:         trained by all ranks, where the program says it
    carried:        bytes by link and direction, from the first step to the last; empty where links are not
                    counted
    alone:          seconds of one exchange of all gradients with nothing beside it, where it is measured
    efficiency:     speed over that of steps without exchange in the same run, likewise
    plan:           what DDL says of itself (`ddl.describe()`)
    """

    seconds: float = 0.0
    time: str = ""
    images_per_sec: float | None = None
    accuracies: list[tuple[float, float]] = field(default_factory=list)
    images: int = 0
    carried: dict[str, int] = field(default_factory=dict)
    alone: float | None = None
    efficiency: float | None = None
    plan: dict[str, Any] = field(default_factory=dict)


class Reader:
    """Reads the lines of a run as they come."""

    def __init__(self, counters: Counters | None = None) -> None:
        self._counters = counters
        self._before: dict[str, int] = {}
        self._begin: float | None = None
        self._totals: list[float] = []
        self._learned: list[tuple[int, float]] = []
        self._texts: dict[str, str] = {}
        self._sample = Sample()

    def __call__(self, line: str, seconds: float) -> None:
        name, match = next(
            ((name, match) for name, pattern in _LINES.items() if (match := pattern.match(line))), ("", None)
        )
        if match is None:
            return
        if name == "begin":
            if self._begin is None:
                self._begin = seconds
                self._before = self._counters() if self._counters else {}
        elif name == "accuracy":
            if self._begin is not None:
                self._sample.accuracies.append((seconds - self._begin, float(match[1])))
        elif name == "learned":
            self._learned.append((int(match[1]), float(match[2])))
            self._sample.accuracies.append((seconds, float(match[2])))
        elif name == "total":
            self._totals.append(float(match[1]))
            if self._counters:
                after = self._counters()
                self._sample.carried = {link: after[link] - count for link, count in self._before.items()}
        else:
            self._texts[name] = match[1] if match.groups() else line

    def _images(self) -> int:
        # the steps of ranks that do not meet are counted one by one
        batch = self._texts.get("device batch" if "asynchronous" in self._texts else "global batch", "0")
        return int(self._texts.get("images", 0)) or int(batch) * int(self._texts.get("steps", 0))

    def _faults(self, kind: Kind, ranks: int, processes: int) -> list[str]:
        """What a run of such a work should have printed, and did not."""
        if kind == "examples":
            good = [count for count, _ in self._learned] == [ranks]
            return [] if good else [f"the accuracy of {ranks} rank(s) once, but {self._learned}"]
        if kind == "synthetic":
            good = len(self._totals) == processes
            return [] if good else [f"{processes} line(s) 'total images/sec:', but {len(self._totals)}"]
        lines = {
            "'Running warm up'": self._begin is not None,
            "'total images/sec'": self._totals,
            "'Accuracy @ 1'": self._sample.accuracies,
            "the number of images": self._images(),
        }
        return [line for line, printed in lines.items() if not printed]

    def sample(self, kind: Kind, ranks: int, processes: int) -> Sample:
        """The figures of a run that has ended, in which each of `processes` gives a total of its own.

        ValueError where it did not print what a run of such a work prints.
        """
        if faults := self._faults(kind, ranks, processes):
            raise ValueError(f"should have printed {', '.join(faults)}")
        sample, texts = self._sample, self._texts
        if self._totals:
            sample.images_per_sec = sum(self._totals) if kind == "synthetic" else self._totals[-1]
        sample.images = self._images() if kind == "digits" else 0
        sample.alone = float(texts["alone"]) if "alone" in texts else None
        sample.efficiency = float(texts["efficiency"]) if "efficiency" in texts else None
        sample.plan = json.loads(texts.get("result", "{}")).get("ddl") or {}
        return sample


def measure(
    command: list[str],
    log: Path,
    timeout: float,
    title: str,
    kind: Kind,
    *,
    ranks: int,
    processes: int = 1,
    counters: Counters | None = None,
) -> Sample:
    """Run a command once. `timeout` in seconds.

    RunFailed: it failed, took longer, or did not print what it should; the text has the log and its last
    lines.
    """
    reader = Reader(counters)
    start = time.monotonic()
    text = run_program(command, log, timeout, title, progress=reader)
    try:
        sample = reader.sample(kind, ranks, processes)
    except ValueError as error:
        raise RunFailed(f"{title} {error}; log {log}; its last lines:\n{tail_of(text)}") from None
    sample.seconds = time.monotonic() - start
    sample.time = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return sample
