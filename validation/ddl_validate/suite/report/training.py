"""Pictures of training: images a second over ranks, of each rank, and the time of each tier."""

from __future__ import annotations

import re
from typing import Any

import plotly.graph_objects as go

from ...common.page import BLUE, GREY, PURPLE, RED, TEAL, Picture, Table, empty_figure
from ..document import Document
from ..model import Figure
from .wording import ratio, with_unit

_NAME = re.compile(r"training\.(.+)\.images_per_sec")
_COLOURS = {"ddl": BLUE, "horovod": PURPLE, "none": TEAL, "single": GREY}
_MARKERS = {"ddl": "circle", "horovod": "square", "none": "diamond", "single": "cross"}
_TITLES = {
    "ddl": "DDL",
    "horovod": "Horovod",
    "none": "as many processes, without exchange",
    "single": "one process",
}


def speeds(document: Document) -> dict[str, list[Figure]]:
    """Images a second by the way of sharing gradients, for ascending numbers of ranks."""
    curves: dict[str, list[Figure]] = {}
    for result in document.results:
        for figure in result.figures:
            name = _NAME.fullmatch(figure.name)
            if name and figure.scale.get("ranks"):
                curves.setdefault(name[1], []).append(figure)
    return {way: sorted(figures, key=lambda figure: figure.scale["ranks"]) for way, figures in curves.items()}


def title_of(way: str) -> str:
    return _TITLES.get(way, way)


def ideal(figures: list[Figure], single: Figure | None) -> list[float]:
    """Perfect scaling: of one process where it was measured, else of the smallest run."""
    base = single or figures[0]
    each = base.value / base.scale["ranks"]
    return [each * figure.scale["ranks"] for figure in figures]


def pictures(document: Document) -> list[Picture]:
    all_curves = speeds(document)
    single = all_curves["single"][0] if "single" in all_curves else None
    curves = {way: figures for way, figures in all_curves.items() if way != "single"}
    charts = []
    if curves:
        charts += [_scaling(curves, single), _per_rank_by_scale(curves, single)]
    for result in document.results:
        each = result.facts.get("per_rank")
        if isinstance(each, list) and each:
            charts.append(_each_rank([float(value) for value in each]))
        tiers = result.facts.get("tiers")
        if isinstance(tiers, list) and tiers:
            charts.append(_tiers(tiers))
    return charts


def _scaling(curves: dict[str, list[Figure]], single: Figure | None) -> Picture:
    drawn = empty_figure(380)
    rows: list[list[str]] = []
    low: set[int] = set()
    for way, figures in curves.items():
        _add_speeds(drawn, way, figures)
        for figure, best in zip(figures, ideal(figures, single), strict=True):
            if figure.low:
                low.add(len(rows))
            rows.append(
                [
                    title_of(way),
                    str(figure.scale.get("hosts", "")),
                    str(figure.scale["ranks"]),
                    with_unit(figure.value, figure.unit),
                    with_unit(figure.expected.value, figure.unit) if figure.expected else "",
                    with_unit(best, figure.unit),
                    f"{figure.value / best:.0%}",
                ]
            )
    longest = max(curves.values(), key=lambda figures: figures[-1].scale["ranks"])
    drawn.add_scatter(
        x=[figure.scale["ranks"] for figure in longest],
        y=ideal(longest, single),
        name="perfect scaling",
        mode="lines",
        line={"color": GREY, "dash": "dash"},
    )
    drawn.update_xaxes(title="ranks", rangemode="tozero")
    drawn.update_yaxes(title="images/s", rangemode="tozero")
    last = rows[-1] if len(curves) == 1 else rows[len(next(iter(curves.values()))) - 1]
    heads = ["gradients by", "hosts", "ranks", "measured", "expected", "perfect scaling", "efficiency"]
    return Picture(
        "Scaling",
        f"{last[0]} reaches {last[3]} on {last[2]} ranks, {last[6]} of perfect scaling.",
        Table(
            "Training speed of all ranks, by their number",
            heads,
            rows,
            frozenset(range(1, 7)),
            frozenset(low),
        ),
        drawn,
    )


def _add_speeds(drawn: go.Figure, way: str, figures: list[Figure]) -> None:
    """A method's curve, beside what was expected of it."""
    colour = _COLOURS.get(way, RED)
    drawn.add_scatter(
        x=[figure.scale["ranks"] for figure in figures],
        y=[figure.value for figure in figures],
        name=title_of(way),
        mode="lines+markers",
        line={"color": colour},
        marker={"symbol": _MARKERS.get(way, "circle"), "size": 9},
    )
    predicted = [
        figure for figure in figures if figure.expected is not None and figure.expected.source != "ideal"
    ]
    if predicted:
        drawn.add_scatter(
            x=[figure.scale["ranks"] for figure in predicted],
            y=[figure.expected.value for figure in predicted if figure.expected],
            name=f"{title_of(way)}, expected",
            mode="lines",
            line={"color": colour, "dash": "dot"},
        )


def _per_rank_by_scale(curves: dict[str, list[Figure]], single: Figure | None) -> Picture:
    drawn = empty_figure(380)
    rows = []
    for way, figures in curves.items():
        each = [figure.value / figure.scale["ranks"] for figure in figures]
        drawn.add_scatter(
            x=[figure.scale["ranks"] for figure in figures],
            y=each,
            name=title_of(way),
            mode="lines+markers",
            line={"color": _COLOURS.get(way, RED)},
            marker={"symbol": _MARKERS.get(way, "circle"), "size": 9},
        )
        rows += [
            [title_of(way), str(figure.scale["ranks"]), with_unit(value, figure.unit)]
            for figure, value in zip(figures, each, strict=True)
        ]
    if single:
        drawn.add_hline(y=single.value, line={"color": GREY, "dash": "dash"}, annotation_text="one process")
        rows.append([title_of("single"), "1", with_unit(single.value, single.unit)])
    drawn.update_xaxes(title="ranks", rangemode="tozero")
    drawn.update_yaxes(title="images/s of a rank", rangemode="tozero")
    return Picture(
        "Images per second of a rank",
        "A flat line is perfect scaling; the drop is the cost of the exchange.",
        Table(
            "Training speed of a rank, by the number of ranks",
            ["gradients by", "ranks", "of a rank"],
            rows,
            frozenset((1, 2)),
        ),
        drawn,
    )


def _each_rank(values: list[float]) -> Picture:
    drawn = empty_figure()
    drawn.add_bar(x=list(range(len(values))), y=values, marker_color=BLUE, showlegend=False)
    drawn.update_xaxes(title="rank")
    drawn.update_yaxes(title="images/s", rangemode="tozero")
    slowest = min(range(len(values)), key=values.__getitem__)
    return Picture(
        "Every rank",
        f"The slowest is rank {slowest} with {with_unit(values[slowest], 'images/s')}.",
        Table(
            "Training speed of every rank",
            ["rank", "images/s"],
            [[str(rank), f"{value:.4g}"] for rank, value in enumerate(values)],
            frozenset((0, 1)),
        ),
        drawn,
    )


def _tiers(tiers: list[dict[str, Any]]) -> Picture:
    drawn = empty_figure()
    names = [str(tier["tier"]) for tier in tiers]
    drawn.add_bar(
        x=names, y=[tier["seconds"] for tier in tiers], name="measured", marker_color=BLUE, width=0.5
    )
    rows = []
    for tier in tiers:
        expected = tier.get("expected")
        share = expected / tier["seconds"] if expected and tier["seconds"] else None
        cells = [
            str(tier["tier"]),
            with_unit(tier["seconds"], "s"),
            with_unit(expected, "s") if expected else "",
        ]
        rows.append([*cells, ratio(share)])
    if any(tier.get("expected") for tier in tiers):
        drawn.add_scatter(
            x=names,
            y=[tier.get("expected") for tier in tiers],
            name="expected",
            mode="markers",
            marker={"symbol": "line-ew-open", "size": 40, "color": GREY, "line": {"width": 3}},
        )
    drawn.update_xaxes(type="category")
    drawn.update_yaxes(title="seconds of an all-reduce", rangemode="tozero")
    longest = max(tiers, key=lambda tier: float(tier["seconds"]))
    return Picture(
        "Time in each tier",
        f"The slowest tier is {longest['tier']}, with {with_unit(longest['seconds'], 's')}.",
        Table(
            "Time of an all-reduce, by tier",
            ["tier", "measured", "expected", "expected / measured"],
            rows,
            frozenset((1, 2, 3)),
        ),
        drawn,
    )
