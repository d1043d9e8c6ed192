"""The comparison as one HTML file: pictures, a table, and the commands."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go
from markupsafe import Markup

from ..common.page import (
    BLUE,
    GREY,
    LAYOUT,
    PURPLE,
    RED,
    TEAL,
    Chart,
    Element,
    Section,
    Table,
    details,
    paragraph,
    pre,
    render_sections,
)
from .results import Results, Row

_BAR_HEIGHT, _FRAME = 34, 110
_ABSENT = "–"


def render(results: Results) -> str:
    measured = [row for row in results.rows if row.speeds]
    rows = results.document()["rows"]
    parts: list[Element | Section] = [_conditions(results.head), *_charts(results, measured)]
    left_out = [paragraph(f"Left out: {line}", "soft") for line in results.head["left_out"]]
    parts.append(Section("Figures", [_table(rows, results.head["accuracy"]), *left_out]))
    parts.append(
        Section("Commands", [details(row["title"], [pre(" ".join(row["command"]))]) for row in rows])
    )
    return render_sections(
        "Ways to train on many machines, side by side", "Ways to train on many machines", parts
    )


def _conditions(head: dict[str, Any]) -> Markup:
    """What was trained, where and when, and what the colours of the bars mean."""
    work, host = head["work"], head["host"]
    text = (
        f"LeNet on the handwritten digits, batch {work['batch']} a worker, {work['epochs']} epochs: "
        f"{head['place']}. On {host['name']} ({host['processor']}, {host['cores']} cores, {host['system']}), "
        f"{head['time']}. Medians of the rounds. Bars: "
    )
    key = Markup(", ").join(
        Markup('<span class="key" style="background: {}"></span> {}').format(colour, kind)
        for colour, kind in ((BLUE, "synchronous"), (TEAL, "asynchronous"))
    )
    return paragraph(Markup("{}{}.").format(text, key), "soft")


def _table(rows: list[dict[str, Any]], accuracy: float) -> Table:
    """Every way with its figures; a dash where it was not measured."""
    cells = []
    for row in rows:
        error = Markup('<br><span class="bad">✗ {}</span>').format(row["error"]) if row["error"] else ""
        seconds = "not reached" if row["speeds"] else _ABSENT
        if row["seconds_to_accuracy"] is not None:
            seconds = f"{row['seconds_to_accuracy']:.1f}"
        cells.append(
            [
                Markup("{}{}").format(row["title"], error),
                _number(row["speed"], 0),
                seconds,
                _number(row["best_accuracy"], 3),
                _number(row["bytes_per_image"], 0),
                str(len(row["speeds"])),
            ]
        )
    heads = ["way", "images/s", f"seconds to {accuracy}", "best accuracy", "bytes an image, slowest link"]
    return Table("Figures of every way", [*heads, "rounds"], cells, frozenset(range(1, 6)))


def _number(value: float | None, digits: int) -> str:
    return _ABSENT if value is None else f"{value:.{digits}f}"


def _colour(row: Row) -> str:
    return TEAL if row.asynchronous else BLUE


def _short(value: float) -> str:
    """Three digits, or all before the point; never a power of ten."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _bars(rows: list[Row], values: list[float | None], title: str, unit: str) -> Chart:
    """One bar a way, those with nothing left out; the first way is at the top."""
    bars = [(row, value) for row, value in zip(rows, values, strict=True) if value is not None]
    figure = go.Figure()
    figure.add_bar(
        orientation="h",
        y=[row.title for row, _ in bars],
        x=[value for _, value in bars],
        marker_color=[_colour(row) for row, _ in bars],
        text=[_short(value) for _, value in bars],
        textposition="auto",
    )
    figure.update_layout(
        **{**LAYOUT, "height": _FRAME + _BAR_HEIGHT * len(bars)}, title=title, xaxis_title=unit
    )
    figure.update_yaxes(autorange="reversed", automargin=True)
    text = "; ".join(f"{row.title} {_short(value)}" for row, value in bars)
    return Chart(figure, f"{title}, in {unit}: {text}")


def _course(rows: list[Row], accuracy: float) -> Chart:
    """Accuracy over time, of each way's first round."""
    figure = go.Figure()
    dashes = ("solid", "dash", "dot", "dashdot")
    colours = (BLUE, TEAL, PURPLE, RED, GREY)
    for number, row in enumerate(rows):
        figure.add_scatter(
            x=[seconds for seconds, _ in row.accuracies[0]],
            y=[value for _, value in row.accuracies[0]],
            name=row.title,
            mode="lines+markers",
            marker={"size": 4},
            line={
                "color": colours[number % len(colours)],
                "dash": dashes[number // len(colours) % len(dashes)],
            },
        )
    figure.add_hline(y=accuracy, line={"color": GREY, "dash": "dot"})
    title = "Accuracy on the held-out digits, by time"
    figure.update_layout(
        **{**LAYOUT, "height": 520},
        title=title,
        xaxis_title="seconds since the first step",
        yaxis_title="accuracy",
    )
    return Chart(figure, f"{title}; the table has when each way reaches {accuracy:g}")


def _charts(results: Results, rows: list[Row]) -> list[Chart]:
    if not rows:
        return []
    link = "rack uplink" if results.racks > 1 else "host link"
    charts = [
        _bars(rows, [row.speed for row in rows], "Images a second of all workers", "images/s"),
        _bars(
            rows,
            [row.seconds_to(results.accuracy) for row in rows],
            f"Time to an accuracy of {results.accuracy:g}",
            "seconds",
        ),
    ]
    carried = [row.bytes_per_image(results.racks) for row in rows]
    if any(value is not None for value in carried):
        charts.append(_bars(rows, carried, f"Bytes on the busiest {link} for an image", "bytes"))
    return [*charts, _course(rows, results.accuracy)]
