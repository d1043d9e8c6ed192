"""What all HTML pages share: one base template, its tables and pictures, style and scripts.

A page is `render_sections` over elements, or a template of its own that extends base.html.j2.
"""

from .elements import (
    Chart,
    Element,
    Picture,
    Section,
    Table,
    details,
    empty_figure,
    listing,
    paragraph,
    pre,
    side_by_side,
)
from .plots import BLUE, GREY, LAYOUT, PURPLE, RED, TEAL
from .rendering import render, render_sections

__all__ = [
    "BLUE",
    "GREY",
    "LAYOUT",
    "PURPLE",
    "RED",
    "TEAL",
    "Chart",
    "Element",
    "Picture",
    "Section",
    "Table",
    "details",
    "empty_figure",
    "listing",
    "paragraph",
    "pre",
    "render",
    "render_sections",
    "side_by_side",
]
