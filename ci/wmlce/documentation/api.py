"""Pages of the API reference: public modules of Python, and headers of C and C++."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from wmlce.documentation import headers
from wmlce.util.errors import WmlceError

_PARTS = ("ddl-core", "extras")
"""Folders of the tree whose packages users import and compile against."""
_NOT_PUBLIC = {"tests", "examples", "build", "bench", "__pycache__"}
_INTERNAL = ("ddl.bootstrap", "ddl_sweep.engines", "ddlrun")
"""Modules with `__all__` that are for other modules of the project alone."""
_FOLDER = "reference/api"


@dataclass(frozen=True)
class Page:
    """A page of the reference."""

    path: str
    """Below docs/, in which no such file lies."""
    title: str
    text: str


def pages(root: Path) -> list[Page]:
    """Modules in the order of their names, then headers."""
    reference = [Page(f"{_FOLDER}/{name}.md", name, f"::: {name}\n") for name in sorted(modules(root))]
    read = [headers.parse(path.name, path.read_text()) for path in _headers(root)]
    reference += [Page(f"{_FOLDER}/{name}.md", name, text) for name, text in headers.pages(read).items()]
    if not reference:
        raise WmlceError(f"{root} has no module and no header for the API reference")
    return reference


def package_folders(root: Path) -> list[Path]:
    """The folders that packages are imported from, which mypy knows, too."""
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    return [root / name for name in settings["tool"]["mypy"]["mypy_path"] if name.startswith(_PARTS)]


def modules(root: Path) -> list[str]:
    """Names of the public modules: those that list in `__all__` what they are for."""
    names = []
    for folder in package_folders(root):
        for path in folder.glob("**/*.py"):
            parts = path.relative_to(folder).with_suffix("").parts
            name = ".".join(part for part in parts if part != "__init__")
            private = any(part.startswith("_") and part != "__init__" for part in parts)
            if private or f"{name}.".startswith(tuple(f"{internal}." for internal in _INTERNAL)):
                continue
            if re.search(r"^__all__\b", path.read_text(), re.MULTILINE):
                names.append(name)
    return names


def _headers(root: Path) -> list[Path]:
    """Headers in folders named include, ddl.h first: it describes what the others build on."""
    paths = [path for path in _files(root, "*.h") + _files(root, "*.hpp") if path.parent.name == "include"]
    return sorted(paths, key=lambda path: (path.name != "ddl.h", path.name))


def _files(root: Path, pattern: str) -> list[Path]:
    return [
        path
        for part in _PARTS
        for path in sorted((root / part).rglob(pattern))
        if not _NOT_PUBLIC & set(path.relative_to(root).parts[:-1])
    ]
