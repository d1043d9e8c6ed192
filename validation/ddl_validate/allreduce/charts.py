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
        figure.add_scatter(
            x=sizes,
            y=bounds,
            name="bandwidth lower bound",
            mode="lines",
            line={"color": BOUND, "dash": "dot"},
        )
    for peer, title in titles.items():
        cells = [best[peer] for size in sizes if peer in (best := best_cells(scenario, size))]
        quarters = [_quartiles([s for run in cell["rounds"] for s in run["seconds"]]) for cell in cells]
        figure.add_scatter(
            x=[cell["bytes"] for cell in cells],
            y=[cell["median"] for cell in cells],
            error_y={
                "type": "data",
                "symmetric": False,
                # the median over the rounds may lie outside the quartiles of all samples
                "array": [max(0, high - c["median"]) for c, (_, high) in zip(cells, quarters, strict=True)],
                "arrayminus": [
                    max(0, c["median"] - low) for c, (low, _) in zip(cells, quarters, strict=True)
                ],
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
    sizes = [row["bytes"] for row in scenario["summary"]]
    bounded = all(row["lower_bound"] for row in scenario["summary"])
    for peer, title in titles.items():
        labels, values = [], []
        for row in scenario["summary"]:
            best = best_cells(scenario, row["bytes"])
            if peer in best:
                base = row["lower_bound"] if bounded else min(cell["median"] for cell in best.values())
                labels.append(show_size(row["bytes"]))
                values.append(best[peer]["median"] / base)
        figure.add_bar(
            x=labels,
            y=values,
            name=title,
            marker_color=COLOURS.get(peer),
            text=[f"{value:.2f}" for value in values],
            textposition="auto",
        )
    figure.add_hline(y=1, line={"color": BOUND, "dash": "dot"})
    unit = "the bandwidth lower bound" if bounded else "the best time"
    figure.update_layout(**LAYOUT, title=f"{scenario['name']}: multiple of {unit}", barmode="group")
    figure.update_xaxes(
        type="category", categoryorder="array", categoryarray=[show_size(size) for size in sizes]
    )
    figure.update_yaxes(title=f"x {unit}")
    return figure


def cpu_chart(scenario: dict[str, Any], titles: dict[str, str]) -> go.Figure:
    """Processor seconds of a call over size, each peer at its fastest setting: all threads of all ranks
    together, user time below and kernel time above it."""
    figure = go.Figure()
    for number, (peer, title) in enumerate(titles.items()):
        cells = [
            best[peer] for row in scenario["summary"] if peer in (best := best_cells(scenario, row["bytes"]))
        ]
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
    figure.update_layout(
        **LAYOUT, title=f"{scenario['name']}: processor time of a call, all ranks", barmode="group"
    )
    figure.update_xaxes(
        type="category",
        categoryorder="array",
        categoryarray=[show_size(row["bytes"]) for row in scenario["summary"]],
    )
    figure.update_yaxes(type="log", title="processor seconds")
    return figure


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
