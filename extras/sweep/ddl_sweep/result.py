"""What a sweep gave: its trials, the best of them, a table."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import SweepError
from .folder import Folder, write_whole


@dataclass(frozen=True)
class TrialResult:
    """One trial.

    Attributes:
        number: 0, 1, 2, …
        status: "done", "pruned" or "failed".
        params: The values of its parameters.
        value: What is optimized; None of a failed trial.
        metrics: All numbers that it gave.
        error: Of a failed trial, the last lines of what it said.
        seconds: How long it took, all attempts together.
        attempts: How often it was tried.
        host: Where it ran.
    """

    number: int
    status: str
    params: dict[str, Any]
    value: float | None
    metrics: dict[str, float]
    error: str | None
    seconds: float
    attempts: int
    host: str

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> TrialResult:
        return cls(**{name: content[name] for name in cls.__dataclass_fields__})


class Result:
    """All trials of a sweep that have ended, by number.

    Attributes:
        trials: What each gave.
        metric: What is optimized.
        goal: "maximize" or "minimize".
    """

    def __init__(self, trials: list[TrialResult], metric: str, goal: str) -> None:
        self.trials, self.metric, self.goal = trials, metric, goal

    @classmethod
    def of(cls, folder: str | os.PathLike[str] | Folder) -> Result:
        """What the folder of a sweep holds by now."""
        folder = folder if isinstance(folder, Folder) else Folder(folder)
        settings = folder.settings()
        trials = [TrialResult.of(content) for _, content in sorted(folder.results().items())]
        return cls(trials, settings["metric"], settings["goal"])

    @property
    def done(self) -> list[TrialResult]:
        return [trial for trial in self.trials if trial.status == "done"]

    @property
    def failed(self) -> list[TrialResult]:
        return [trial for trial in self.trials if trial.status == "failed"]

    @property
    def best(self) -> TrialResult:
        """The best trial; of equal ones the first.

        Raises:
            SweepError: No trial is done.
        """
        if not self.done:
            raise SweepError("no trial is done, so none is the best; the table has the errors of failed ones")
        sign = 1 if self.goal == "minimize" else -1
        return min(self.done, key=lambda trial: (sign * (trial.value or 0.0), trial.number))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A flat dict for each trial: trial, status, its parameters, its metrics, seconds, host, error.

        A metric that is called like another column is called `metric NAME`.
        """
        rows = []
        for trial in self.trials:
            row: dict[str, Any] = {"trial": trial.number, "status": trial.status, **trial.params}
            last = {"seconds": trial.seconds, "attempts": trial.attempts, "host": trial.host}
            for name, value in trial.metrics.items():
                row[f"metric {name}" if name in row or name in last or name == "error" else name] = value
            rows.append({**row, **last, "error": trial.error})
        return rows

    def columns(self) -> list[str]:
        names: dict[str, None] = {}
        last = ("seconds", "attempts", "host", "error")
        for row in self.rows:
            names |= dict.fromkeys(name for name in row if name not in last)
        return [*names, *last]

    def table(self) -> str:
        """The table as text: one line a trial, the best one marked with *."""
        columns = [name for name in self.columns() if name not in ("attempts", "host")]
        best = self.best.number if self.done else None
        lines = [["", *columns]]
        for row in self.rows:
            lines.append(
                ["*" if row["trial"] == best else "", *(_shown(name, row.get(name)) for name in columns)]
            )
        widths = [max(len(line[index]) for line in lines) for index in range(len(columns) + 1)]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        )

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str:
        """The table as CSV, in a file where one is given."""
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns(), restval="", lineterminator="\n")
        writer.writeheader()
        for row in self.rows:
            plain = {
                name: json.dumps(value) if isinstance(value, list | dict) else value
                for name, value in row.items()
            }
            writer.writerow(plain)
        if path is not None:
            write_whole(Path(path), text.getvalue().encode())
        return text.getvalue()


def summary(error: str) -> str:
    """The line of an error that says most: the exception of a traceback, else the first."""
    lines = error.strip().splitlines() or [""]
    return lines[-1 if lines[0].startswith("Traceback") else 0][:200]


def _shown(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name == "error":
        return summary(value)
    if name == "seconds":
        return f"{value:.1f}"
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) else json.dumps(value)
