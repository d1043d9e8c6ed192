"""How far a sweep is: a moving line on a terminal, else a line for every trial. On standard error."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

from .result import summary
from .worker import Outcome


class Progress:
    """A context manager around the trials.

    total, done: Of the whole sweep, also what ended before it was continued.
    """

    def __init__(
        self, total: int, results: dict[int, dict[str, Any]], metric: str, goal: str, quiet: bool = False
    ) -> None:
        self._total, self._metric, self._goal, self._quiet = total, metric, goal, quiet
        self._done = 0
        self._failed = 0
        self._best: Outcome | None = None
        self._bar: Any = None
        self._task: Any = None
        for outcome in results.values():
            self._count(outcome)

    def __enter__(self) -> Progress:
        if self._quiet:
            return self
        if self._done:
            self._line(f"{self._done} of {self._total} trials have ended before")
        if sys.stderr.isatty():
            try:
                from rich.console import Console
                from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
                from rich.progress import Progress as Bar
            except ModuleNotFoundError:
                return self
            columns = (TextColumn("trials {task.completed}/{task.total}"), BarColumn(), TimeElapsedColumn())
            self._bar = Bar(*columns, TextColumn("{task.description}"), console=Console(stderr=True))
            self._bar.start()
            self._task = self._bar.add_task(self._told(), total=self._total, completed=self._done)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def ended(self, outcome: Outcome) -> None:
        self._count(outcome)
        if self._quiet:
            return
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done, description=self._told())
            if outcome["status"] == "failed":
                self._bar.console.print(self._of(outcome), markup=False, highlight=False)
            return
        self._line(f"{self._of(outcome)}; {self._told()}")

    def lost(self, number: int, why: str) -> None:
        if not self._quiet:
            self._line(f"trial {number} is lost and runs again: {why}")

    def _line(self, text: str) -> None:
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False)
        else:
            print(f"sweep: {text}", file=sys.stderr, flush=True)

    def _count(self, outcome: Outcome) -> None:
        self._done += 1
        self._failed += outcome["status"] == "failed"
        if outcome["status"] == "done":
            sign = -1 if self._goal == "minimize" else 1
            if self._best is None or sign * outcome["value"] > sign * self._best["value"]:
                self._best = outcome

    def _of(self, outcome: Outcome) -> str:
        params = " ".join(f"{name}={_short(value)}" for name, value in outcome["params"].items())
        if outcome["status"] == "failed":
            how = f"failed: {summary(outcome['error'])}"
        else:
            value = outcome["value"]
            how = outcome["status"] if value is None else f"{self._metric} {value:.6g}"
            how += " (pruned)" if outcome["status"] == "pruned" and value is not None else ""
        return f"{self._done}/{self._total} trial {outcome['number']} {params}: {how}"

    def _told(self) -> str:
        best = (
            "no trial done yet"
            if self._best is None
            else f"best {self._metric} {self._best['value']:.6g} of trial {self._best['number']}"
        )
        return best + (f"; {self._failed} failed" if self._failed else "")


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
