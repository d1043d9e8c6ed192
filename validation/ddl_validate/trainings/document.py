"""What was measured: rows with their samples, in a file that outlasts a program."""

from __future__ import annotations

import contextlib
import json
import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..common.files import write_atomic
from .methods import METHODS
from .run import Sample

KIND, SCHEMA = "trainings", 1


@dataclass
class Row:
    """One method that trains one work at a number of ranks.

    work, method: their names
    title:        of the method, with the version of what it shows
    batch:        images a rank and step
    error:        why the last run gave nothing
    samples:      one a round
    """

    work: str
    method: str
    ranks: int
    title: str = ""
    batch: int = 0
    asynchronous: bool = False
    command: list[str] = field(default_factory=list)
    log: str = ""
    error: str | None = None
    samples: list[Sample] = field(default_factory=list)

    @property
    def speeds(self) -> list[float]:
        """Images a second of all ranks, one of each round."""
        return [sample.images_per_sec for sample in self.samples if sample.images_per_sec is not None]

    @property
    def speed(self) -> float | None:
        return median(self.speeds)

    def faster_than(self, other: Row) -> float | None:
        """How many times: median of the rounds. The two runs of a round are minutes apart, over which a
        machine drifts less than over all rounds."""
        return median([speed / its for speed, its in zip(self.speeds, other.speeds, strict=False)])

    def longer_than(self, other: Row) -> float | None:
        """Seconds by which a step is longer than the other's: median of the rounds."""
        images = self.ranks * self.batch
        pairs = zip(self.speeds, other.speeds, strict=False)
        return median([images / speed - images / its for speed, its in pairs])


def median(values: list[float]) -> float | None:
    return statistics.median(values) if values else None


class Document:
    """All rows, and the head: what the document says beside them.

    An earlier call's rows count where their `identity` is the same, unless `fresh`.
    """

    def __init__(self, path: Path, head: dict[str, Any], fresh: bool = True) -> None:
        self.path, self.head = path, {"kind": KIND, "schema": SCHEMA, **head}
        self.rows: list[Row] = []
        if not fresh:
            with contextlib.suppress(OSError, ValueError):  # it is measured again
                earlier = read(path)
                if earlier.head.get("identity") == self.head["identity"]:
                    self.rows = earlier.rows

    @property
    def accuracy(self) -> float:
        """The accuracy whose time counts."""
        return float(self.head["accuracy"])

    @property
    def racks(self) -> int:
        return int(self.head["racks"])

    def find(self, work: str, method: str, ranks: int) -> Row | None:
        key = (work, method, ranks)
        return next((row for row in self.rows if (row.work, row.method, row.ranks) == key), None)

    def row(self, work: str, method: str, ranks: int) -> Row:
        """The row of a training; where there is none yet it becomes the last."""
        row = self.find(work, method, ranks)
        if row is None:
            row = Row(work, method, ranks)
            self.rows.append(row)
        return row

    def by_work(self) -> Iterator[tuple[str, list[Row]]]:
        for work in dict.fromkeys(row.work for row in self.rows):
            yield work, [row for row in self.rows if row.work == work]

    def write(self, figures: list[dict[str, Any]]) -> None:
        """Write the file. figures: of each row."""
        rows = [{**asdict(row), "figures": values} for row, values in zip(self.rows, figures, strict=True)]
        write_atomic(self.path, json.dumps({**self.head, "rows": rows}, indent=1))


def read(path: Path) -> Document:
    """The document of a file. OSError: there is none. ValueError: it is none of this release."""
    data = json.loads(path.read_text())
    try:
        if (data.pop("kind"), data.pop("schema")) != (KIND, SCHEMA):
            raise ValueError("of another release; measure it again")
        rows = [
            Row(**{**row, "samples": [Sample(**sample) for sample in row["samples"]]})
            for row in data.pop("rows")
            if row.pop("figures") is not None
        ]
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"not a document of trainings: {error!r}; measure it again") from None
    if not {row.method for row in rows} <= METHODS.keys():
        raise ValueError("has methods of another release; measure it again")
    document = Document(path, data)
    document.rows = rows
    return document
