"""The pictures of a result, drawn by Plotly out of its JSON document."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from ..common.page import GREY, Chart, Element, Section, render_sections
from ..common.page import LAYOUT as PAGE_LAYOUT
from .sizes import show_rate, show_seconds, show_size
from .table import best_cells, describe, titles_of

COLOURS = {
    "ddl": "#0f62fe",
    "openmpi": "#da1e28",
    "mpich": "#8a3ffc",
    "gloo": "#198038",
    "ucc": "#b28600",
    "oneccl": "#007d79",
    "nccl": "#76b900",
}
BOUND = GREY
LAYOUT: dict[str, Any] = {**PAGE_LAYOUT, "height": 420}


def time_chart(scenario: dict[str, Any], titles: dict[str, str]) -> go.Figure:
    """Time over size, each peer at its best setting with the quartiles of its samples, and the bandwidth
    lower bound."""
    figure = go.Figure()
    sizes = [row["bytes"] for row in scenario["summary"]]
    bounds = [row["lower_bound"] for row in scenario["summary"]]
    if any(bounds):
        line = {"color": BOUND, "dash": "dot"}
        figure.add_scatter(x=sizes, y=bounds, name="bandwidth lower bound", mode="lines", line=line)
    for peer, title in titles.items():
        cells = _best_of(scenario, peer)
        # the median over the rounds may lie outside the quartiles of all samples
        errors = [
            (max(0, high - cell["median"]), max(0, cell["median"] - low))
            for cell in cells
            for low, high in [_quartiles([s for run in cell["rounds"] for s in run["seconds"]])]
        ]
        figure.add_scatter(
            x=[cell["bytes"] for cell in cells],
            y=[cell["median"] for cell in cells],
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [above for above, _ in errors],
                "arrayminus": [below for _, below in errors],
            },
            name=title,
            mode="lines+markers",
            line={"color": COLOURS.get(peer)},
            text=[
                f"{show_size(c['bytes'])}, {c['setting']}: {show_seconds(c['median'])}, "
                f"busbw {show_rate(c['busbw'])}"
                for c in cells
            ],
            hoverinfo="text+name",
        )
    figure.update_layout(**LAYOUT, title=f"{scenario['name']}: time ({describe(scenario)})")
    figure.update_xaxes(
        type="log", tickvals=sizes, ticktext=[show_size(size) for size in sizes], title="buffer of each rank"
    )
    figure.update_yaxes(type="log", title="seconds")
    return figure


def ratio_chart(scenario: dict[str, Any], titles: dict[str, str]) -> go.Figure:
    """Time as a multiple of the bandwidth lower bound, or of the best time where there is no such bound."""
    figure = go.Figure()
    bounded = all(row["lower_bound"] for row in scenario["summary"])
    bases = {row["bytes"]: row["lower_bound"] for row in scenario["summary"]}
    if not bounded:
        cells = {size: best_cells(scenario, size).values() for size in bases}
        bases = {size: min(cell["median"] for cell in best) for size, best in cells.items()}
    for peer, title in titles.items():
        best = _best_of(scenario, peer)
        values = [cell["median"] / bases[cell["bytes"]] for cell in best]
        figure.add_bar(
            x=[show_size(cell["bytes"]) for cell in best],
            y=values,
            name=title,
            marker_color=COLOURS.get(peer),
            text=[f"{value:.2f}" for value in values],
            textposition="auto",
        )
    figure.add_hline(y=1, line={"color": BOUND, "dash": "dot"})
    unit = "the bandwidth lower bound" if bounded else "the best time"
    _bars_by_size(figure, scenario, f"multiple of {unit}")
    figure.update_yaxes(title=f"x {unit}")
    return figure


def cpu_chart(scenario: dict[str, Any], titles: dict[str, str]) -> go.Figure:
    """Processor seconds of a call over size, each peer at its fastest setting: all threads of all ranks
    together, user time below and kernel time above it."""
    figure = go.Figure()
    for number, (peer, title) in enumerate(titles.items()):
        cells = _best_of(scenario, peer)
        for part, opacity in (("user", 1.0), ("system", 0.5)):
            figure.add_bar(
                x=[show_size(cell["bytes"]) for cell in cells],
                y=[cell[f"cpu_{part}"] for cell in cells],
                name=f"{title}, {part}",
                offsetgroup=str(number),
                base=None if part == "user" else [cell["cpu_user"] for cell in cells],
                marker={"color": COLOURS.get(peer), "opacity": opacity},
                text=[show_seconds(cell[f"cpu_{part}"]) for cell in cells],
                hoverinfo="text+name",
                textposition="none",
            )
    _bars_by_size(figure, scenario, "processor time of a call, all ranks")
    figure.update_yaxes(type="log", title="processor seconds")
    return figure


def _best_of(scenario: dict[str, Any], peer: str) -> list[dict[str, Any]]:
    """A peer's cells at its best settings, by size."""
    best = (best_cells(scenario, row["bytes"]) for row in scenario["summary"])
    return [cells[peer] for cells in best if peer in cells]


def _bars_by_size(figure: go.Figure, scenario: dict[str, Any], title: str) -> None:
    figure.update_layout(**LAYOUT, title=f"{scenario['name']}: {title}", barmode="group")
    sizes = [show_size(row["bytes"]) for row in scenario["summary"]]
    figure.update_xaxes(type="category", categoryorder="array", categoryarray=sizes)


def scenario_charts(scenario: dict[str, Any], titles: dict[str, str]) -> list[go.Figure]:
    """All pictures of a scenario."""
    return [chart(scenario, titles) for chart in (time_chart, ratio_chart, cpu_chart)]


def _quartiles(samples: list[float]) -> tuple[float, float]:
    ordered = sorted(samples)
    last = len(ordered) - 1
    return ordered[round(last / 4)], ordered[round(3 * last / 4)]


def page(document: dict[str, Any]) -> str:
    """All pictures as one HTML page that needs no network."""
    titles = titles_of(document)
    charts: list[Element | Section] = [
        Chart(figure)
        for scenario in document["scenarios"]
        if scenario["cells"]
        for figure in scenario_charts(scenario, titles)
    ]
    return render_sections("ddl-bench", "ddl-bench", charts, "the charts")
