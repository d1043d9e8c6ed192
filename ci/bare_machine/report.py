"""The trials' results as a table and for scripts, and what has passed on this machine before."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from wmlce.util.errors import WmlceError
from wmlce.util.files import write_atomic, write_json

from bare_machine.other_systems import SYSTEMS
from bare_machine.trial import Result

_COLUMNS = [
    *("Debian", "as", "form", "whole trial", "`./ci/quickstart`", "trained: images/s by ranks, or accuracy"),
    *("tests", "outcome", "commit, date"),
]


class Report:
    """build/report/bare-machine.json and .md: the last result of every trial."""

    def __init__(self, folder: Path) -> None:
        self._json, self._table = folder / "bare-machine.json", folder / "bare-machine.md"
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def where(self) -> Path:
        return self._table

    def add(self, result: Result) -> None:
        """Write both files with this result in place of the trial's earlier one."""
        rows = [row for row in self.rows() if _trial(row) != _trial(asdict(result))]
        rows = sorted([*rows, asdict(result)], key=_trial)
        write_json(self._json, {"trials": rows})
        self._table.write_text(table([Result(**row) for row in rows]))

    def rows(self) -> list[dict[str, Any]]:
        try:
            rows = json.loads(self._json.read_text())["trials"]
            return [row for row in rows if asdict(Result(**row)) == row]
        except (OSError, ValueError, KeyError, TypeError):
            return []


class Passed:
    """Results of trials that passed on this machine, by content."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, content: str) -> Result | None:
        try:
            return Result(**json.loads((self._folder / f"{content}.json").read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def add(self, result: Result) -> None:
        if result.passed:
            write_json(self._folder / f"{result.content}.json", asdict(result))


def _trial(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["form"], row["release"], row["user"]


def table(results: Sequence[Result]) -> str:
    """Markdown."""
    lines = [f"| {' | '.join(_COLUMNS)} |", "|---" * len(_COLUMNS) + "|"]
    for result in results:
        quickstart = result.steps.get("quickstart")
        test = result.steps.get("test")
        tests = f"{_minutes(test)}: {result.tests}" if test is not None else "-"
        outcome = "passed" if result.passed else f"failed: {(result.error or '').splitlines()[0]}"
        cells = [
            result.release,
            result.user,
            result.form,
            _minutes(sum(result.steps.values())),
            _minutes(quickstart) if quickstart is not None else "-",
            result.trained or "-",
            tests,
            outcome,
            f"{result.commit}, {result.date}",
        ]
        lines.append("| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


MARKS = ("<!-- ci/bare-machine --record writes this table -->", "<!-- to here -->")


def record(folder: Path, page: Path) -> None:
    """Write the results of other systems, the last of each, as a table between two marks of a page. Rows of
    systems that this clone has no result of stay.
    """
    rows = [Result(**row) for row in Report(folder).rows() if row["form"] == "system"]
    if not rows:
        raise WmlceError("no system was tried in this clone", remedy="ci/bare-machine --systems")
    text = page.read_text()
    before, begin, rest = text.partition(MARKS[0])
    table, end, after = rest.partition(MARKS[1])
    if not (begin and end):
        raise WmlceError(
            f"{page} has no place for the table", remedy=f"write the lines {' and '.join(MARKS)}"
        )
    head = ["| system | emulated by | as | `./ci/quickstart` | outcome | commit, date |", "|---" * 6 + "|"]
    lines = {}
    for line in table.splitlines():
        if line.startswith("| ") and line not in head:
            old = [cell.strip() for cell in line.split("|")]
            lines[old[1], old[3]] = line
    for row in rows:
        took = _minutes(row.steps["quickstart"]) if "quickstart" in row.steps else "-"
        passed = f"trained: {row.trained} images/s by ranks" if row.trained else "refused, with the remedy"
        outcome = passed if row.passed else f"failed: {(row.error or '').splitlines()[0]}"
        cells = [
            row.release,
            SYSTEMS[row.release].means(),
            row.user,
            took,
            outcome,
            f"{row.commit}, {row.date}",
        ]
        lines[row.release, row.user] = "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"
    written = [lines[key] for key in sorted(lines)]
    write_atomic(page, "\n".join([before + begin, "", *head, *written, "", end + after]))


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
