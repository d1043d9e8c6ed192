"""What a sweep gave: its trials, the best of them, a table."""

from __future__ import annotations

import csv
import io
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import SweepError
from .study import Study

_LAST_COLUMNS = ("seconds", "attempts", "host", "error")


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
    def of(cls, folder: str | os.PathLike[str] | Study) -> Result:
        """What the folder of a sweep holds by now."""
        study = folder if isinstance(folder, Study) else Study(folder)
        trials = [TrialResult(**outcome) for outcome in study.outcomes().values()]
        return cls(trials, study.identity["metric"], study.identity["goal"])

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
        return min(self.done, key=lambda trial: sign * (trial.value or 0.0))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A flat dict for each trial: trial, status, its parameters, its metrics, seconds, host, error.

        A metric that is called like another column is called `metric NAME`.
        """
        rows = []
        for trial in self.trials:
            row: dict[str, Any] = {"trial": trial.number, "status": trial.status, **trial.params}
            for name, value in trial.metrics.items():
                row[f"metric {name}" if name in row or name in _LAST_COLUMNS else name] = value
            rows.append({**row, **{name: getattr(trial, name) for name in _LAST_COLUMNS}})
        return rows

    def columns(self) -> list[str]:
        names = dict.fromkeys(name for row in self.rows for name in row if name not in _LAST_COLUMNS)
        return [*names, *_LAST_COLUMNS]

    def table(self) -> str:
        """The table as text: one line a trial, the best one marked with *."""
        columns = [name for name in self.columns() if name not in ("attempts", "host")]
        best = self.best.number if self.done else None
        lines = [["", *columns]]
        for row in self.rows:
            cells = [_shown(name, row.get(name)) for name in columns]
            lines.append(["*" if row["trial"] == best else "", *cells])
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str:
        """The table as CSV, in a file where one is given, which appears whole or not at all."""
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns(), restval="", lineterminator="\n")
        writer.writeheader()
        for row in self.rows:
            writer.writerow(
                {
                    key: json.dumps(value) if isinstance(value, list | dict) else value
                    for key, value in row.items()
                }
            )
        if path is not None:
            with tempfile.TemporaryDirectory(prefix=".table-", dir=Path(path).absolute().parent) as folder:
                whole = Path(folder) / "table.csv"
                whole.write_text(text.getvalue(), "utf-8")
                whole.replace(path)
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
    if isinstance(value, float):
        return f"{value:.1f}" if name == "seconds" else f"{value:.6g}"
    return value if isinstance(value, str) else json.dumps(value)
