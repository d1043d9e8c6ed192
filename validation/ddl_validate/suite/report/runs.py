"""Pictures of the history: the figures that count, run by run, with what has become worse marked."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import plotly.graph_objects as go

from ...common.page import BLUE, GREY, RED, Picture, Table, empty_figure
from ..document import Document
from ..history import History, Regression, figures_of
from ..model import Figure, Key
from .network import by_name
from .training import speeds, title_of
from .wording import place, with_unit

_SHOWN = 30  # runs
_REGRESSED = 4  # pictures of figures that are no headline

Reader = Callable[[Document], Figure | None]


def shown_runs(document: Document, history: History) -> list[Document]:
    """The last runs at this site on as many hosts, and this one."""
    before = [
        run
        for run in history.documents
        if run.site == document.site
        and len(run.hosts) == len(document.hosts)
        and run.started < document.started
    ]
    return [*before[-_SHOWN:], document]


def pictures(document: Document, history: History, regressions: Sequence[Regression]) -> list[Picture]:
    runs = shown_runs(document, history)
    if len(runs) < 2:
        return []
    worse = {regression.figure.key: regression for regression in regressions}
    readers: list[tuple[str, Reader]] = []
    drawn_keys = set()
    for way, figures in speeds(document).items():
        last = figures[-1]
        drawn_keys.add(last.key)
        readers.append((f"Training by {title_of(way)}, {last.where}", _by_key(last)))
    for name, title in (
        ("link.bandwidth", "Slowest link between hosts"),
        ("host.core", "Slowest cores of a host"),
        ("host.memory", "Slowest memory of a host"),
    ):
        if by_name(document).get(name):
            readers.append((title, _slowest(name)))
    for regression in regressions:
        if regression.figure.key not in drawn_keys and len(readers) < len(drawn_keys) + 3 + _REGRESSED:
            readers.append(
                (f"{regression.figure.name}, {place(regression.figure)}", _by_key(regression.figure))
            )
    return [picture for title, reader in readers if (picture := _over_runs(title, reader, runs, worse))]


def _by_key(figure: Figure) -> Reader:
    key = figure.key
    return lambda document: figures_of(document).get(key)


def _slowest(name: str) -> Reader:
    return lambda document: min(
        by_name(document).get(name, []), key=lambda figure: figure.value, default=None
    )


def _over_runs(
    title: str, reader: Reader, runs: list[Document], worse: dict[Key, Regression]
) -> Picture | None:
    points = [(run, figure) for run in runs if (figure := reader(run)) is not None]
    if len(points) < 2:
        return None
    last = points[-1][1]
    unit = last.unit
    regressed = points[-1][0] is runs[-1] and last.key in worse
    earlier = with_unit(statistics.median(figure.value for _, figure in points[:-1]), unit)
    text = f"{with_unit(last.value, unit)} in this run; "
    text += f"the median of {len(points) - 1} earlier ones is {earlier}."
    if regressed:
        text = "Worse than before: " + text
    rows = [
        [run.started, run.verdict, place(figure), with_unit(figure.value, unit)]
        for run, figure in reversed(points)
    ]
    return Picture(
        title,
        text,
        Table(
            f"{title}, newest run first",
            ["run", "verdict", "where", "measured"],
            rows,
            frozenset((3,)),
            frozenset((0,)) if regressed else frozenset(),
        ),
        _chart(points, regressed),
    )


def _chart(points: list[tuple[Document, Figure]], regressed: bool) -> go.Figure:
    """A figure run by run, with each run's verdict."""
    last = points[-1][1]
    drawn = empty_figure(300)
    dates = [run.started[:16] for run, _ in points]
    drawn.add_scatter(
        x=dates,
        y=[figure.value for _, figure in points],
        mode="lines",
        line={"color": GREY, "width": 1},
        showlegend=False,
        hoverinfo="skip",
    )
    for verdict, symbol, colour in (
        ("passed", "circle", BLUE),
        ("failed", "x", RED),
        ("incomplete", "circle-open", GREY),
    ):
        chosen = [number for number, (run, _) in enumerate(points) if run.verdict == verdict]
        if chosen:
            drawn.add_scatter(
                x=[dates[number] for number in chosen],
                y=[points[number][1].value for number in chosen],
                name=f"run {verdict}",
                mode="markers",
                marker={"symbol": symbol, "size": 8, "color": colour},
            )
    if regressed:
        drawn.add_scatter(
            x=dates[-1:],
            y=[last.value],
            name="worse than before",
            mode="markers",
            marker={"symbol": "circle-open", "size": 20, "color": RED, "line": {"width": 3}},
        )
    drawn.update_xaxes(type="date")
    drawn.update_yaxes(title=last.unit if last.unit != "1" else "", rangemode="tozero", tickformat="~s")
    return drawn
