"""Documents made of a package's own templates (NAME.j2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined


def rendered(
    package: str, name: str, filters: Mapping[str, Callable[..., Any]] | None = None, /, **values: Any
) -> str:
    """What a template makes of values, ending with one line break; in HTML (NAME.html.j2) their text is
    escaped. A value that the template names and that is not given is a defect of the caller.
    """
    environment = Environment(
        undefined=StrictUndefined,
        autoescape=name.endswith(".html.j2"),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= filters or {}
    text: str = environment.from_string((files(package) / name).read_text()).render(**values)
    return text.rstrip("\n") + "\n"
