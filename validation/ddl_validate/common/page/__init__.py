"""What HTML pages share: style, and pictures that Plotly draws in the reader's colours, without a network.

A page needs STYLE in a `<style>`, `plot` where a picture stands, and `scripts` at the end of its body.
"""

from __future__ import annotations

import functools
from html import escape
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

_FOLDER = Path(__file__).parent
STYLE = (_FOLDER / "style.css").read_text()

# Each has a contrast of 3 or more to white and to the dark page.
BLUE, RED, GREY, TEAL, PURPLE = "#0f62fe", "#da1e28", "#8d8d8d", "#009d9a", "#a56eff"
LAYOUT: dict[str, Any] = {
    "template": "plotly_white",
    "margin": {"l": 60, "r": 20, "t": 50, "b": 50},
    "height": 360,
    "font": {"family": "system-ui, sans-serif"},
    "legend": {"orientation": "h", "y": -0.25},
}


def plot(figure: go.Figure, label: str = "") -> str:
    """A picture, with its title above it as text that wraps. label: what a screen reader says of it; without
    one, its title.

    Plotly's JSON has no `<`: no text in it ends the script.
    """
    drawn = go.Figure(figure)
    title = drawn.layout.title.text or ""
    if title:
        drawn.update_layout(title=None, margin={**drawn.layout.margin.to_plotly_json(), "t": 16})
    height = int(drawn.layout.height or LAYOUT["height"])
    return (
        (f'<p class="title" aria-hidden="true">{escape(title)}</p>' if title else "")
        + f'<div class="plot" role="img" aria-label="{escape(label or title)}" style="height:{height}px">'
        f'<script type="application/json">{drawn.to_json()}</script></div>'
    )


@functools.cache
def scripts() -> str:
    """Plotly, and what draws the page's pictures with it."""
    return f"<script>{get_plotlyjs()}</script>\n<script>{(_FOLDER / 'page.js').read_text()}</script>"


def behaviour() -> str:
    """Buttons that copy, for a page without pictures."""
    return f"<script>{(_FOLDER / 'page.js').read_text()}</script>"
