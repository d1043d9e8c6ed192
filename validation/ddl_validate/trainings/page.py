"""A document of trainings as a section of a page: pictures, tables, and the commands."""

from __future__ import annotations

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
    side_by_side,
)
from .document import Document, Row
from .figures import cells_of, figures_of
from .methods import METHODS

_BAR_HEIGHT, _FRAME = 34, 110
_LINES = (BLUE, TEAL, PURPLE, RED, GREY)
#: The figures that are drawn: title and unit.
_DRAWN = {
    "images_per_sec": ("Images a second of all ranks", "images/s"),
    "seconds_to_accuracy": ("Time to an accuracy of {accuracy:g}", "seconds"),
    "bytes_per_image": ("Bytes on the busiest of the slowest links for an image", "bytes"),
}


def section(document: Document) -> Section:
    """What was trained, where and when; a section for each work."""
    head, host = document.head, document.head["host"]
    text = (
        f"{head['place']}; {host['name']} ({host['processor']}, {host['cores']} cores, {host['system']}), "
        f"{head['time']}. Figures are medians of the rounds."
    )
    parts: list[Element | Section] = [paragraph(text, "soft")]
    if any(row.speeds for row in document.rows):
        colours = ((BLUE, "synchronous"), (TEAL, "asynchronous"), (GREY, "without exchange"))
        key = Markup('<span class="key" style="background: {}"></span> {}')
        kinds = Markup(", ").join(key.format(colour, kind) for colour, kind in colours)
        parts.append(paragraph(Markup("Bars: {}.").format(kinds), "soft"))
    for work, rows in document.by_work():
        parts.append(Section(head["works"][work]["text"], _work(work, rows, document)))
    parts += [paragraph(f"Left out: {line}", "soft") for line in head["left_out"]]
    return Section(f"Trainings: {', '.join(head['works'])}", parts)


def _work(work: str, rows: list[Row], document: Document) -> list[Element]:
    cells = cells_of(rows, document)
    for row, line in zip(rows, cells.rows, strict=True):
        if row.error:
            line[0] = Markup('{}<br><span class="bad">✗ {}</span>').format(line[0], row.error)
    measured = [row for row in rows if row.samples]
    if len({row.ranks for row in measured}) > 1:
        charts = [_scaling(work, measured)]
    else:
        charts = [chart for name in _DRAWN if (chart := _bars(measured, document, name))]
    if any(len(row.samples[0].accuracies) > 1 for row in measured):
        charts.append(_course(measured, document.accuracy))
    logs = [pre(f"{' '.join(row.command)}\nlog: {row.log}") for row in rows]
    return [
        Table(f"Figures of every training, {work}", cells.headings, cells.rows, cells.numbers),
        *([side_by_side(charts)] if charts else []),
        details(f"Commands and logs, {work}", logs),
    ]


def _colour(row: Row) -> str:
    return GREY if METHODS[row.method].independent else TEAL if row.asynchronous else BLUE


def _short(value: float) -> str:
    """Three digits, or all before the point; never a power of ten."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _bars(rows: list[Row], document: Document, name: str) -> Chart | None:
    """One bar a method, those without the figure left out; the first method is at the top."""
    bars = [(row, value) for row in rows if isinstance(value := figures_of(row, document)[name], float)]
    if not bars:
        return None
    title, unit = _DRAWN[name][0].format(accuracy=document.accuracy), _DRAWN[name][1]
    figure = go.Figure()
    speeds = [row.speeds for row, _ in bars]
    figure.add_bar(
        orientation="h",
        y=[row.title for row, _ in bars],
        x=[value for _, value in bars],
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [max(rounds) - value for rounds, (_, value) in zip(speeds, bars, strict=True)],
            "arrayminus": [value - min(rounds) for rounds, (_, value) in zip(speeds, bars, strict=True)],
        }
        if name == "images_per_sec"
        else None,
        marker_color=[_colour(row) for row, _ in bars],
        text=[_short(value) for _, value in bars],
        textposition="auto",
    )
    height = max(220, _FRAME + _BAR_HEIGHT * len(bars))
    figure.update_layout(**{**LAYOUT, "height": height}, title=title, xaxis_title=unit)
    figure.update_yaxes(autorange="reversed", automargin=True)
    text = "; ".join(f"{row.title} {_short(value)}" for row, value in bars)
    return Chart(figure, f"{title}, in {unit}: {text}")


def _scaling(work: str, rows: list[Row]) -> Chart:
    """Images a second over ranks, and perfect scaling of the fewest."""
    figure = go.Figure()
    for number, method in enumerate(dict.fromkeys(row.method for row in rows)):
        points = sorted((row.ranks, row.speed) for row in rows if row.method == method and row.speed)
        if not points:
            continue
        (fewest, speed), title = points[0], METHODS[method].title
        colour, x = _LINES[number % len(_LINES)], [ranks for ranks, _ in points]
        for y, name, dash in (
            ([value for _, value in points], title, "solid"),
            ([speed * ranks / fewest for ranks in x], f"{title}, perfect scaling", "dot"),
        ):
            figure.add_scatter(
                x=x, y=y, name=name, mode="lines+markers", line={"color": colour, "dash": dash}
            )
    figure.update_layout(
        **LAYOUT, title=f"{work}: images per second", xaxis_title="ranks", yaxis_title="images/s"
    )
    figure.update_xaxes(type="category")
    figure.update_yaxes(rangemode="tozero")
    return Chart(figure)


def _course(rows: list[Row], accuracy: float) -> Chart:
    """Accuracy over time, of each method's first round."""
    figure = go.Figure()
    dashes = ("solid", "dash", "dot", "dashdot")
    for number, row in enumerate(rows):
        figure.add_scatter(
            x=[seconds for seconds, _ in row.samples[0].accuracies],
            y=[value for _, value in row.samples[0].accuracies],
            name=row.title,
            mode="lines+markers",
            marker={"size": 4},
            line={
                "color": _LINES[number % len(_LINES)],
                "dash": dashes[number // len(_LINES) % len(dashes)],
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
    return Chart(figure, f"{title}; the table has when each method reaches {accuracy:g}")
