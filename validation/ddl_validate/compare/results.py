"""What was measured: rows of the document, kept in a file after every run."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..common.store import ResultStore
from .measure import Measured, busiest
from .ways import Way

SCHEMA = 1


@dataclass
class Row:
    """One way; a list has a value of each round. speeds: images a second of all workers. images: trained in
    a round. accuracies: pairs (seconds since the first step, accuracy) of each round. carried: bytes by link
    and direction, of each round. error: why the last run gave nothing.
    """

    name: str
    title: str
    asynchronous: bool
    page: str
    command: list[str] = field(default_factory=list)
    speeds: list[float] = field(default_factory=list)
    images: list[int] = field(default_factory=list)
    accuracies: list[list[tuple[float, float]]] = field(default_factory=list)
    carried: list[dict[str, int]] = field(default_factory=list)
    error: str | None = None

    def add(self, measured: Measured) -> None:
        self.error = None
        self.speeds.append(measured.speed)
        self.images.append(measured.images)
        self.accuracies.append(measured.accuracies)
        self.carried.append(measured.carried)

    @property
    def speed(self) -> float | None:
        return statistics.median(self.speeds) if self.speeds else None

    def seconds_to(self, accuracy: float) -> float | None:
        """Median over the rounds; None where a round did not come so far."""
        times = [
            next((seconds for seconds, value in course if value >= accuracy), None)
            for course in self.accuracies
        ]
        reached = [seconds for seconds in times if seconds is not None]
        return statistics.median(reached) if times and len(reached) == len(times) else None

    @property
    def best(self) -> float | None:
        """The highest accuracy of a round, median over the rounds."""
        tops = [max(value for _, value in course) for course in self.accuracies if course]
        return statistics.median(tops) if tops else None

    def bytes_per_image(self, racks: int) -> float | None:
        """On the busiest of the slowest links, in its busier direction; median over the rounds."""
        shares = [
            link[1] / images
            for carried, images in zip(self.carried, self.images, strict=True)
            if (link := busiest(carried, racks=racks)) is not None
        ]
        return statistics.median(shares) if shares else None


class Results(ResultStore[Row]):
    """The document."""

    def __init__(self, path: Path, head: dict[str, Any], fresh: bool) -> None:
        super().__init__(path, {"kind": "compare", "schema": SCHEMA, **head}, Row, fresh)

    def row(self, way: Way) -> Row:
        """The row of a way, in the order of the first runs."""
        return self.find(Row(way.name, way.title, way.asynchronous, way.page), "name")

    @property
    def racks(self) -> int:
        return int(self.head["racks"])

    @property
    def accuracy(self) -> float:
        return float(self.head["accuracy"])

    def row_documents(self) -> list[dict[str, Any]]:
        return [
            {
                **asdict(row),
                "speed": row.speed,
                "seconds_to_accuracy": row.seconds_to(self.accuracy),
                "best_accuracy": row.best,
                "bytes_per_image": row.bytes_per_image(self.racks),
            }
            for row in self.rows
        ]
