"""The runs of before, a file each: what has become worse since, and what to expect from now on."""

from __future__ import annotations

import json
import os
import re
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .document import Document, now, read
from .errors import ValidateError
from .model import HIGHER, Figure, Key

LAST = 10
LEAST = 3  # runs before a figure is judged: fewer have no scatter
TOLERANCE = 0.1
_SIGMAS = 3.0
_TO_SIGMA = 1.4826  # a normal distribution's standard deviation over its median absolute deviation
_SAME_SECOND = 1000


@dataclass
class History:
    """documents: oldest first. damaged: what could not be read of the folder, and why."""

    documents: list[Document] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Regression:
    """A figure that has become worse. median, scatter: of the `runs` good runs before it; ratio: this run's
    value over the median, below 1 where it is worse.
    """

    figure: Figure
    median: float
    scatter: float
    ratio: float
    runs: int

    @property
    def text(self) -> str:
        return (
            f"{self.figure.name} of {self.figure.where} is {self.figure.value:.4g} {self.figure.unit}: "
            f"{self.ratio:.0%} of {self.median:.4g}, the median of the last {self.runs} good runs"
        )


def figures_of(document: Document) -> dict[Key, Figure]:
    return {figure.key: figure for result in document.results for figure in result.figures}


def record(document: Document, folder: Path) -> Path:
    """Write the document into the folder, under its time. Whoever reads meanwhile sees all of it or nothing.

    Raises ValidateError.
    """
    stamp = re.sub(r"[^0-9T]", "", (document.started or now()).partition("+")[0]) or "unknown"
    level = re.sub(r"[^a-z0-9-]", "", document.level.lower()) or "run"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=folder, prefix=f".{stamp}.") as draft:
            json.dump(document.as_json(), draft, indent=1)
            draft.flush()
            os.chmod(draft.name, 0o644)
            for number in range(_SAME_SECOND):
                path = folder / f"{stamp}-{level}{f'-{number + 1}' if number else ''}.json"
                try:
                    os.link(draft.name, path)  # never over a file that is there
                    return path
                except FileExistsError:
                    continue
    except OSError as error:
        raise ValidateError(
            f"{folder}: the result cannot be recorded: {error.strerror}; name another folder by --history"
        ) from error
    raise ValidateError(f"{folder}: {_SAME_SECOND} results of {stamp} are there already")


def load(folder: Path) -> History:
    """All runs of a folder; one that is not there has none."""
    history = History()
    for path in sorted(folder.glob("*.json")):
        try:
            history.documents.append(read(path))
        except ValidateError as error:
            history.damaged.append(str(error))
    history.documents.sort(key=lambda document: document.started)
    return history


def good_before(document: Document, history: History, last: int = LAST) -> list[Document]:
    """The last runs before this one that found nothing, on as many hosts, at the same site."""
    passed = [
        run
        for run in history.documents
        if run.verdict == "passed"
        and run.site == document.site
        and len(run.hosts) == len(document.hosts)
        and run.started < document.started
    ]
    return passed[-last:] if last > 0 else []


def compare(
    document: Document, history: History, last: int = LAST, tolerance: float = TOLERANCE
) -> list[Regression]:
    """Figures that are worse than the median of the last good runs, by more than the tolerance and by more
    than those runs scatter. The worst comes first.
    """
    before = [figures_of(run) for run in good_before(document, history, last)]
    regressions = []
    for key, figure in figures_of(document).items():
        values = [
            figures[key].value for figures in before if key in figures and figures[key].unit == figure.unit
        ]
        if len(values) < LEAST:
            continue
        median = statistics.median(values)
        if median <= 0:
            continue
        scatter = scatter_of(values)
        allowed = figure.expected.tolerance if figure.expected else tolerance
        worse = median - figure.value if figure.better == HIGHER else figure.value - median
        if worse > max(allowed * median, _SIGMAS * scatter):
            ratio = figure.value / median if figure.better == HIGHER else median / figure.value
            regressions.append(Regression(figure, median, scatter, ratio, len(values)))
    return sorted(regressions, key=lambda regression: regression.ratio)


def scatter_of(values: Sequence[float]) -> float:
    """The standard deviation, by the median absolute deviation: a single odd run changes it little."""
    median = statistics.median(values)
    return _TO_SIGMA * statistics.median(abs(value - median) for value in values)


def baseline(documents: Sequence[Document], tolerance: float = TOLERANCE) -> dict[str, Any]:
    """What to expect from now on: the medians of recorded runs, as a reference file has them
    (expect.read_reference). Each figure has the tolerance that its scatter asks for.

    Raises ValidateError where a run found a fault, or there is none.
    """
    if not documents:
        raise ValidateError("no run to make a baseline of; record one first: wmlce validate --history DIR")
    for document in documents:
        if document.verdict != "passed" or not any(result.figures for result in document.results):
            why = document.findings[0].text if document.findings else "it has no figures"
            raise ValidateError(
                f"the run of {document.started} cannot be a baseline: {why}; fix that and run it again"
            )
    runs = [figures_of(document) for document in documents]
    figures = []
    for key, figure in runs[-1].items():
        values = [figures[key].value for figures in runs if key in figures]
        median = statistics.median(values)
        scatter = _SIGMAS * scatter_of(values) / median if median > 0 else 0.0
        figures.append(
            {
                "name": figure.name,
                "where": figure.where,
                "scale": figure.scale,
                "value": median,
                "unit": figure.unit,
                "better": figure.better,
                "tolerance": round(min(max(tolerance, scatter), 0.5), 4),
            }
        )
    return {
        "kind": "cluster-baseline",
        "schema": 1,
        "runs": [document.started for document in documents],
        "hosts": documents[-1].hosts,
        "release": documents[-1].release,
        "figures": figures,
    }
