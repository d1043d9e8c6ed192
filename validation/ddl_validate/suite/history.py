"""The runs of before, a file each: what has become worse since, and what to expect from now on."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import re
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .attribution import scatter_of
from .document import Document, now, read
from .errors import ValidateError
from .model import HIGHER, LOWER, NOISE, Figure, Key, hosts_in

LAST = 10
LEAST = 5  # runs before a figure is judged: fewer say little of its scatter
LONG = 20  # runs of a slow decline
_YEAR = datetime.timedelta(days=365)
TOLERANCE = 0.1
_SIGMAS = 3.0
_SAME_SECOND = 1000


@dataclass
class History:
    """documents: oldest first. damaged: what could not be read of the folder, and why."""

    documents: list[Document] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Regression:
    """A figure that has become worse. median, scatter: of the `runs` good runs before it; ratio: this run's
    value over the median, below 1 where it is worse. since: where it has declined slowly, the time of the
    first of these runs; median is then what it began with.
    """

    figure: Figure
    median: float
    scatter: float
    ratio: float
    runs: int
    since: str = ""

    @property
    def text(self) -> str:
        if self.since:
            return (
                f"{self.figure.name} of {self.figure.where} has become worse from run to run: it is "
                f"{self.figure.value:.4g} {self.figure.unit}, {self.ratio:.0%} of the {self.median:.4g} with "
                f"which {self.runs} good runs began on {self.since.partition('T')[0]}"
            )
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


def good_before(document: Document, history: History) -> list[Document]:
    """The runs before this one that found nothing: of the same level, release and site."""
    return [
        run
        for run in history.documents
        if run.verdict == "passed"
        and (run.site, run.level, run.release) == (document.site, document.level, document.release)
        and run.started < document.started
    ]


def on_like_hosts(document: Document, run: Document) -> bool:
    """Whether figures of several hosts can be compared: as many of each kind, or the very same hosts."""
    if document.kinds and run.kinds:
        return sorted(document.kinds) == sorted(run.kinds)
    return sorted(document.hosts) == sorted(run.hosts)


def good_on_like_hosts(document: Document, history: History, last: int = LAST) -> list[Document]:
    """Returns those of `good_before` whose figures can all be compared, the last ones."""
    return [run for run in good_before(document, history) if on_like_hosts(document, run)][-last:]


def compare(
    document: Document, history: History, last: int = LAST, tolerance: float = TOLERANCE
) -> list[Regression]:
    """Figures that are worse than before, the worst first.

    Worse than the median of the last good runs by more than the tolerance and by more than those runs
    scatter; or declining over the runs of a year. A host's own figures, and those of a path, are compared
    with all runs that have the host; those of several hosts with runs on like hosts.
    """
    runs = [(run, figures_of(run), on_like_hosts(document, run)) for run in good_before(document, history)]
    regressions = []
    for key, figure in figures_of(document).items():
        before = [
            (run.started, figures[key].value)
            for run, figures, alike in runs
            if key in figures and figures[key].unit == figure.unit and (alike or hosts_in(figure.where))
        ]
        if len(before) < LEAST:
            continue
        allowed = figure.expected.tolerance if figure.expected else tolerance
        regression = _worse(figure, [value for _, value in before[-last:]], allowed)
        regression = regression or _declining(figure, before, allowed)
        if regression is not None:
            regressions.append(regression)
    return sorted(regressions, key=lambda regression: regression.ratio)


def _worse(figure: Figure, values: Sequence[float], allowed: float) -> Regression | None:
    """By the last runs."""
    median, scatter = statistics.median(values), scatter_of(values)
    return _regression(figure, median, scatter, len(values), max(allowed * median, _SIGMAS * scatter))


def _declining(figure: Figure, before: Sequence[tuple[str, float]], allowed: float) -> Regression | None:
    """By the line through the runs of a year: the last ones alone have all of a slow decline in them."""
    if len(before) < LONG:
        return None
    newest = _time(before[-1][0])
    recent = [(started, value) for started, value in before if newest - _time(started) <= _YEAR]
    if len(recent) < LONG:
        return None
    days = [(_time(started) - _time(recent[0][0])).total_seconds() / 86400 for started, _ in recent]
    values = [value for _, value in recent]
    line = linear_regression(days, values)
    scatter = scatter_of([value - line(day) for day, value in zip(days, values, strict=True)])
    least = max(allowed * line(0.0), _SIGMAS * scatter)
    change = line(days[-1]) - line(0.0)
    if (change if figure.better == LOWER else -change) <= least:
        return None
    regression = _regression(figure, line(0.0), scatter, len(recent), least)
    return regression and dataclasses.replace(regression, since=recent[0][0])


def _regression(figure: Figure, usual: float, scatter: float, runs: int, least: float) -> Regression | None:
    """Where the figure is worse than usual by more than `least`, and than its noise."""
    if usual <= 0:
        return None
    worse = usual - figure.value if figure.better == HIGHER else figure.value - usual
    if worse <= max(least, NOISE.get(figure.name, 0.0)):
        return None
    ratio = figure.value / usual if figure.better == HIGHER else usual / figure.value
    return Regression(figure, usual, scatter, ratio, runs)


def linear_regression(xs: Sequence[float], ys: Sequence[float]) -> Callable[[float], float]:
    """The line with the median of the slopes between all points: Theil-Sen estimator, Sen 1968, JASA 63."""
    slopes = [
        (ys[b] - ys[a]) / (xs[b] - xs[a])
        for a in range(len(xs))
        for b in range(a + 1, len(xs))
        if xs[b] != xs[a]
    ]
    slope = statistics.median(slopes) if slopes else 0.0
    offset = statistics.median(y - slope * x for x, y in zip(xs, ys, strict=True))
    return lambda x: offset + slope * x


def _time(text: str) -> datetime.datetime:
    try:
        return datetime.datetime.fromisoformat(text)
    except ValueError:
        return datetime.datetime.min.replace(tzinfo=datetime.UTC)


def baseline(documents: Sequence[Document], tolerance: float = TOLERANCE) -> dict[str, Any]:
    """What to expect from now on: the medians of recorded runs, as a reference file has them
    (expect.read_reference). Each figure has the tolerance that its scatter asks for.

    Raises ValidateError where a run found a fault, or there is none.
    """
    if not documents:
        raise ValidateError("no run to make a baseline of; record one first: wmlce validate --history DIR")
    for document in documents:
        if document.verdict != "passed" or not any(result.figures for result in document.results):
            why = document.faults[0].text if document.faults else "it has no figures"
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
