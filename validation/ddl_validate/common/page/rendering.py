"""Templates made into pages: one HTML file each, with its style and scripts, that needs no network."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup
from plotly.offline import get_plotlyjs

_FOLDER = Path(__file__).parent
_SCRIPTS = "<!-- scripts -->"


def render(template: Path, filters: dict[str, Callable[..., Any]] | None = None, /, **context: Any) -> str:
    """The page that a template makes, which extends base.html.j2 of this folder."""
    environment = _environment(template.parent)
    environment.filters |= filters or {}
    return _with_scripts(environment.get_template(template.name).render(context))


def render_sections(title: str, heading: str, parts: list[Any], skip_to: str = "the figures") -> str:
    """A page that is a heading and what stands below it: elements, and sections of them."""
    template = _environment(_FOLDER).get_template("base.html.j2")
    return _with_scripts(template.render(title=title, heading=heading, parts=parts, skip_to=skip_to))


def macro(name: str, *arguments: Any) -> Markup:
    write: Callable[..., Markup] = getattr(_environment(_FOLDER).get_template("macros.html.j2").module, name)
    return write(*arguments)


@functools.cache
def _environment(folder: Path) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder, _FOLDER]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.globals["style"] = Markup((_FOLDER / "style.css").read_text())
    return environment


def _with_scripts(page: str) -> str:
    """Plotly's script, the largest part by far, is added only where there are pictures."""
    script = (_FOLDER / "page.js").read_text()
    plotly = f"<script>{get_plotlyjs()}</script>\n" if 'class="plot"' in page else ""
    return page.replace(_SCRIPTS, f"{plotly}<script>{script}</script>")
