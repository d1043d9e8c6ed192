"""The pictures of the report, drawn by Plotly."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from ..common.page import BLUE, GREY
from ..common.page import LAYOUT as PAGE_LAYOUT

MEASURED, IDEAL = BLUE, GREY
LAYOUT: dict[str, Any] = {**PAGE_LAYOUT, "bargap": 0.5}


def scaling_chart(result: dict[str, Any]) -> go.Figure:
    """Images per second over ranks, beside perfect scaling of the smallest run."""
    runs = result["runs"]
    ranks = [str(run["ranks"]) for run in runs]
    per_rank = runs[0]["images_per_sec"] / runs[0]["ranks"]
    figure = go.Figure()
    figure.add_bar(
        x=ranks,
        y=[run["images_per_sec"] for run in runs],
        name="measured",
        marker_color=MEASURED,
        text=[f"{run['images_per_sec']:.1f} ({run['efficiency']:.0%})" for run in runs],
        textposition="inside",
    )
    figure.add_scatter(
        x=ranks,
        y=[per_rank * run["ranks"] for run in runs],
        name="perfect scaling",
        mode="lines+markers",
        line={"color": IDEAL, "dash": "dot"},
    )
    figure.update_layout(
        **LAYOUT, title=f"{result['model']}: images per second", xaxis_title="ranks", yaxis_title="images/s"
    )
    figure.update_xaxes(type="category")
    return figure


def training_speed_chart(model: str, rows: list[dict[str, Any]]) -> go.Figure:
    """Images per second of each configuration, from its slowest round to its fastest; grey what exchanges
    nothing."""
    figure = go.Figure()
    figure.add_bar(
        x=[row["title"] for row in rows],
        y=[row["median"] for row in rows],
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [max(row["speeds"]) - row["median"] for row in rows],
            "arrayminus": [row["median"] - min(row["speeds"]) for row in rows],
        },
        marker_color=[IDEAL if row["parallel_efficiency"] is None else MEASURED for row in rows],
        text=[
            f"{row['median']:.3g}"
            + ("" if row["parallel_efficiency"] is None else f" ({row['parallel_efficiency']:.0%})")
            for row in rows
        ],
        textposition="inside",
    )
    figure.update_layout(**LAYOUT, title=f"{model}: images per second, parallel efficiency", showlegend=False)
    figure.update_yaxes(title="images/s", rangemode="tozero")
    return figure


def steps_chart(result: dict[str, Any]) -> go.Figure:
    """Speed of each rank's steps as the run goes on, with its uncertainty."""
    figure = go.Figure()
    for run in result["runs"]:
        steps = run["steps"]
        figure.add_scatter(
            x=[step["step"] for step in steps],
            y=[step["images_per_sec"] for step in steps],
            error_y={"type": "data", "array": [step["uncertainty"] for step in steps]},
            name=f"{run['ranks']} rank(s)",
            mode="lines+markers",
        )
    figure.update_layout(
        **LAYOUT, title="Speed of one rank during the run", xaxis_title="step", yaxis_title="images/s"
    )
    figure.update_yaxes(rangemode="tozero")
    return figure
