"""What pages consist of: tables, pictures and sections, each of which writes itself as HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import plotly.graph_objects as go
from markupsafe import Markup

from .plots import LAYOUT, plot
from .rendering import macro


class Element(Protocol):
    """A part of a page: Markup, or one of the classes below."""

    def __html__(self) -> str: ...


@dataclass(frozen=True)
class Table:
    """A table under its caption.

    numbers:  columns of numbers
    low:      rows of figures that are too low
    commands: one a row, to be copied
    """

    caption: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: frozenset[int] = frozenset()
    low: frozenset[int] = frozenset()
    commands: Sequence[str] = ()

    def __html__(self) -> Markup:
        return macro("table", self)


@dataclass(frozen=True)
class Chart:
    """A picture without a table of its own.

    label: what a screen reader says of it; without one, its title.
    """

    figure: go.Figure = field(repr=False)
    label: str = ""

    def __html__(self) -> Markup:
        return plot(self.figure, self.label)


@dataclass(frozen=True)
class Picture:
    """A picture, and the table with the same figures for whoever cannot see it.

    text: what the picture shows, in a sentence. wide: it needs the width of the page.
    """

    title: str
    text: str
    table: Table
    figure: go.Figure = field(repr=False)
    wide: bool = False

    @property
    def chart(self) -> Chart:
        return Chart(self.figure, f"{self.title}. {self.text}")

    def __html__(self) -> Markup:
        return macro("picture", self)


@dataclass(frozen=True)
class Section:
    """A heading, whose level follows from the sections around it, and what stands below."""

    title: str
    parts: Sequence[Element | Section]


def empty_figure(height: int = 0) -> go.Figure:
    """A figure in the pages' layout; the title stands above it, as a heading."""
    figure = go.Figure()
    figure.update_layout(**{**LAYOUT, "margin": {"l": 56, "r": 16, "t": 16, "b": 48}})
    if height:
        figure.update_layout(height=height)
    return figure


def paragraph(text: str, kind: str = "") -> Markup:
    """A paragraph of text or Markup. kind: its class in style.css."""
    return Markup('<p class="{}">{}</p>' if kind else "<p>{1}</p>").format(kind, text)


def side_by_side(charts: Iterable[go.Figure | Element]) -> Markup:
    """Pictures beside one another, as many as the window has room for."""
    cells = (Chart(chart) if isinstance(chart, go.Figure) else chart for chart in charts)
    return Markup('<div class="charts">{}</div>').format(
        Markup("").join(Markup("<div>{}</div>").format(cell) for cell in cells)
    )


def details(summary: str, parts: Iterable[Element]) -> Markup:
    """What is folded until a reader opens it."""
    return Markup("<details><summary>{}</summary>\n{}</details>").format(summary, Markup("\n").join(parts))


def listing(lines: Iterable[str], kind: str = "") -> Markup:
    """A list of lines. kind: their class in style.css."""
    items = (
        Markup('<li class="{}">{}</li>' if kind else "<li>{1}</li>").format(kind, line) for line in lines
    )
    return Markup("<ul>{}</ul>").format(Markup("").join(items))


def pre(text: str) -> Markup:
    """Text as a program printed it."""
    return Markup("<pre>{}</pre>").format(text)
