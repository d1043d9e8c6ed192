"""A picture of the report, and the table with the same figures: for whoever cannot see the picture."""

from __future__ import annotations

from dataclasses import dataclass, field

import plotly.graph_objects as go

from ...common.page import LAYOUT, plot


@dataclass(frozen=True)
class Table:
    """numbers: columns of numbers. low: rows of figures that are too low."""

    caption: str
    heads: list[str]
    rows: list[list[str]]
    numbers: frozenset[int] = frozenset()
    low: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Picture:
    """text: what the picture shows, in a sentence. wide: it needs the width of the page."""

    title: str
    text: str
    table: Table
    figure: go.Figure = field(repr=False)
    wide: bool = False

    @property
    def html(self) -> str:
        return plot(self.figure, f"{self.title}. {self.text}")


def empty(height: int = 0) -> go.Figure:
    """A figure in the pages' layout; the title stands above it, as a heading."""
    figure = go.Figure()
    figure.update_layout(**{**LAYOUT, "margin": {"l": 56, "r": 16, "t": 16, "b": 48}})
    if height:
        figure.update_layout(height=height)
    return figure
