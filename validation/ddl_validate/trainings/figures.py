"""The figures that follow from the samples: the columns of every table, in the order of the tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .document import Document, Row, median
from .methods import COUNTERPARTS, METHODS

Value = float | str | None


@dataclass(frozen=True)
class Figure:
    """One column.

    name:    in the document
    heading: of the table
    form:    of a number
    value:   of a row; None where it was not measured, or one of the sides that it compares was not
    """

    name: str
    heading: str
    form: str
    value: Callable[[Row, Document], Value]

    def cell(self, row: Row, document: Document) -> str:
        """The value as text; empty where there is none."""
        value = self.value(row, document)
        if value is not None:
            return self.form.format(value)
        if row.error and not row.samples and self.name == "images_per_sec":
            return "failed"
        timed = self.name == "seconds_to_accuracy" and row.work == "digits" and row.samples
        return "not reached" if timed else ""


def _range(row: Row, document: Document) -> Value:
    speeds = row.speeds
    return f"{min(speeds):.2f} to {max(speeds):.2f}" if len(speeds) > 1 else None


def _efficiency(row: Row, document: Document) -> Value:
    """Speed a rank over that of the same training on the fewest ranks."""
    same = [other for other in document.rows if (other.work, other.method) == (row.work, row.method)]
    rows = [other for other in same if other.speeds]
    base = min(rows, key=lambda other: other.ranks, default=row)
    if len(rows) < 2 or row.speed is None or base.speed is None:
        return None
    return row.speed / row.ranks / (base.speed / base.ranks)


def _beside(row: Row, document: Document, number: int) -> Row | None:
    """The row of the counterpart in the same framework that exchanges nothing (0), or is DDL's (1)."""
    names = COUNTERPARTS.get(METHODS[row.method].trainer)
    beside = document.find(row.work, names[number], row.ranks) if names else None
    return None if beside is row or METHODS[row.method].independent else beside


def _against(
    number: int, figure: Callable[[Row, Row], float | None]
) -> Callable[[Row, Document], float | None]:
    """A figure of a row and the one beside it (see _beside)."""

    def value(row: Row, document: Document) -> float | None:
        other = _beside(row, document, number)
        return figure(row, other) if other else None

    return value


#: Seconds that a step is longer than without communication.
_exchange = _against(0, Row.longer_than)


def _communication_efficiency(row: Row, document: Document) -> Value:
    return median([sample.efficiency for sample in row.samples if sample.efficiency is not None])


def _overlap(row: Row, document: Document) -> Value:
    """Seconds of an exchange that went on beside the backward pass: the time of one alone, less `exchange`.

    In TensorFlow that is known for DDL in groups only: DDL's gradients can be exchanged in one piece after
    the backward pass, too.
    """
    alone = median([sample.alone for sample in row.samples if sample.alone is not None])
    plain = _beside(row, document, 1)
    if row.method == "ddl-groups" and plain:
        alone = _exchange(plain, document)
    exchange = _exchange(row, document)
    if not METHODS[row.method].overlaps or alone is None or exchange is None:
        return None
    return alone - exchange


def _seconds_to(row: Row, document: Document) -> Value:
    """Median over the rounds; None where a round did not come so far."""
    times = [
        next((seconds for seconds, value in sample.accuracies if value >= document.accuracy), None)
        for sample in row.samples
    ]
    reached = [seconds for seconds in times if seconds is not None]
    return median(reached) if len(reached) == len(times) and row.work == "digits" else None


def _best(row: Row, document: Document) -> Value:
    """The highest accuracy of a round, median over the rounds."""
    tops = [max(value for _, value in sample.accuracies) for sample in row.samples if sample.accuracies]
    return median(tops)


def busiest(carried: dict[str, int], *, racks: int) -> tuple[str, int] | None:
    """The link and direction that carried most, of the slowest kind: rack uplinks where there are several
    racks, else hosts' links."""
    kind = "rack" if racks > 1 else ""
    of_kind = {link: count for link, count in carried.items() if link.startswith(kind)}
    return max(of_kind.items(), key=lambda pair: pair[1]) if of_kind else None


def _bytes_per_image(row: Row, document: Document) -> Value:
    """On the busiest of the slowest links, in its busier direction; median over the rounds."""
    links = [(busiest(sample.carried, racks=document.racks), sample.images) for sample in row.samples]
    return median([link[1] / images for link, images in links if link and images])


def _chose(row: Row, document: Document) -> Value:
    plan = row.samples[-1].plan if row.samples else {}
    return describe_plan(plan) if plan else None


def describe_plan(plan: dict[str, Any]) -> str:
    """What DDL chose, in one cell: the algorithm of the last gradient exchange and what carried it."""
    if plan.get("size") == 1:
        return "one rank: no communication"
    algorithm = (plan.get("last") or {}).get("algorithm") or "nothing was exchanged"
    algorithm = algorithm.partition(";")[0]
    hosts = len((plan.get("topology") or {}).get("hosts", []))
    carried = " and ".join(plan.get("transports", []))
    return f"{algorithm}; {hosts} host(s), {carried}" if carried else str(algorithm)


FIGURES = (
    Figure("images_per_sec", "images/s", "{:.2f}", lambda row, document: row.speed),
    Figure("range", "lowest to highest", "{}", _range),
    Figure("efficiency", "efficiency", "{:.2f}", _efficiency),
    Figure("parallel_efficiency", "parallel efficiency", "{:.2f}", _against(0, Row.faster_than)),
    Figure("communication_efficiency", "communication efficiency", "{:.3f}", _communication_efficiency),
    Figure("ddl_ahead", "DDL is ahead", "{:.2f}x", _against(1, lambda row, ddl: ddl.faster_than(row))),
    Figure("exchange", "exchange", "{:.3f} s", _exchange),
    Figure("overlap", "overlap", "{:.3f} s", _overlap),
    Figure("seconds_to_accuracy", "seconds to {accuracy:g}", "{:.1f}", _seconds_to),
    Figure("best_accuracy", "best accuracy", "{:.3f}", _best),
    Figure("bytes_per_image", "bytes an image, slowest link", "{:.0f}", _bytes_per_image),
    Figure("seconds", "run time", "{:.1f} s", lambda row, _: median([s.seconds for s in row.samples])),
    Figure("chose", "DDL chose", "{}", _chose),
    Figure("time", "time", "{}", lambda row, document: row.samples[-1].time if row.samples else None),
)


def figures_of(row: Row, document: Document) -> dict[str, Value]:
    return {figure.name: figure.value(row, document) for figure in FIGURES}


def write(document: Document) -> None:
    """Write the document with the figures of its rows."""
    document.write([figures_of(row, document) for row in document.rows])


@dataclass(frozen=True)
class Cells:
    """A table as text. numbers: the columns of numbers."""

    headings: list[str]
    rows: list[list[str]]
    numbers: frozenset[int]


def cells_of(rows: list[Row], document: Document, without: str = "") -> Cells:
    """A table of some rows, with the columns that are not empty, but `without` one."""
    columns = {
        figure.heading.format(accuracy=document.accuracy): [figure.cell(row, document) for row in rows]
        for figure in FIGURES
        if figure.name != without
    }
    columns = {heading: cells for heading, cells in columns.items() if any(cells)}
    if len({row.ranks for row in rows}) > 1:
        columns = {"ranks": [str(row.ranks) for row in rows], **columns}
    columns = {"method": [row.title for row in rows], **columns}
    texts = {figure.heading for figure in FIGURES if figure.form == "{}"} | {"method"}
    numbers = frozenset(number for number, heading in enumerate(columns) if heading not in texts)
    return Cells(list(columns), [list(cells) for cells in zip(*columns.values(), strict=True)], numbers)
