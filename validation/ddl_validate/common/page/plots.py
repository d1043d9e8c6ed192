"""Pictures that Plotly draws in the reader's colours, without a network."""

from __future__ import annotations

from html import escape
from typing import Any

import plotly.graph_objects as go
from markupsafe import Markup

# Each has a contrast of 3 or more to white and to the dark page.
BLUE, RED, GREY, TEAL, PURPLE = "#0f62fe", "#da1e28", "#8d8d8d", "#009d9a", "#a56eff"
LAYOUT: dict[str, Any] = {
    "template": "plotly_white",
    "margin": {"l": 60, "r": 20, "t": 50, "b": 50},
    "height": 360,
    "font": {"family": "system-ui, sans-serif"},
    "legend": {"orientation": "h", "y": -0.25},
}


def plot(figure: go.Figure, label: str = "") -> Markup:
    """A picture, with its title above it as text that wraps. label: what a screen reader says of it; without
    one, its title.

    Plotly's JSON has no `<`: no text in it ends the script.
    """
    untitled = go.Figure(figure)
    title = untitled.layout.title.text or ""
    if title:
        untitled.update_layout(title=None, margin={**untitled.layout.margin.to_plotly_json(), "t": 16})
    height = int(untitled.layout.height or LAYOUT["height"])
    return Markup(
        (f'<p class="title" aria-hidden="true">{escape(title)}</p>' if title else "")
        + f'<div class="plot" role="img" aria-label="{escape(label or title)}" style="height:{height}px">'
        f'<script type="application/json">{untitled.to_json()}</script></div>'
    )
