"""What all HTML pages share: one base template, its tables and pictures, style and scripts.

A page is `render_sections` over elements, or a template of its own that extends base.html.j2.
"""

from .elements import Chart as Chart
from .elements import Element as Element
from .elements import Picture as Picture
from .elements import Section as Section
from .elements import Table as Table
from .elements import details as details
from .elements import empty_figure as empty_figure
from .elements import listing as listing
from .elements import paragraph as paragraph
from .elements import pre as pre
from .elements import side_by_side as side_by_side
from .plots import BLUE as BLUE
from .plots import GREY as GREY
from .plots import LAYOUT as LAYOUT
from .plots import PURPLE as PURPLE
from .plots import RED as RED
from .plots import TEAL as TEAL
from .rendering import render as render
from .rendering import render_sections as render_sections
