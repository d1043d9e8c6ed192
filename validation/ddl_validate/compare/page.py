"""The comparison as one HTML file: pictures, a table, and the commands."""

from __future__ import annotations

from pathlib import Path

import jinja2
import plotly.graph_objects as go
from markupsafe import Markup

from ..common.page import BLUE, GREY, LAYOUT, PURPLE, RED, STYLE, TEAL, plot, scripts
from .results import Results, Row

_BAR_HEIGHT, _FRAME = 34, 110


def render(results: Results) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    measured = [row for row in results.rows if row.speeds]
    return environment.get_template("page.html.j2").render(
        head=results.head,
        rows=results.document()["rows"],
        pictures=[Markup(picture) for picture in _pictures(results, measured)],
        style=Markup(STYLE),
        scripts=Markup(scripts()),
    )


def _colour(row: Row) -> str:
    return TEAL if row.asynchronous else BLUE


def _short(value: float) -> str:
    """Three digits, or all before the point; never a power of ten."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _bars(rows: list[Row], values: list[float | None], title: str, unit: str) -> str:
    """One bar a way, those with nothing left out; the first way is at the top."""
    shown = [(row, value) for row, value in zip(rows, values, strict=True) if value is not None]
    figure = go.Figure()
    figure.add_bar(
        orientation="h",
        y=[row.title for row, _ in shown],
        x=[value for _, value in shown],
        marker_color=[_colour(row) for row, _ in shown],
        text=[_short(value) for _, value in shown],
        textposition="auto",
    )
    figure.update_layout(
        **{**LAYOUT, "height": _FRAME + _BAR_HEIGHT * len(shown)}, title=title, xaxis_title=unit
    )
    figure.update_yaxes(autorange="reversed", automargin=True)
    said = "; ".join(f"{row.title} {_short(value)}" for row, value in shown)
    return plot(figure, f"{title}, in {unit}: {said}")


def _course(rows: list[Row], accuracy: float) -> str:
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
    return plot(figure, f"{title}; the table has when each way reaches {accuracy:g}")


def _pictures(results: Results, rows: list[Row]) -> list[str]:
    if not rows:
        return []
    link = "rack uplink" if results.racks > 1 else "host link"
    made = [
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
        made.append(_bars(rows, carried, f"Bytes on the busiest {link} for an image", "bytes"))
    return [*made, _course(rows, results.accuracy)]
