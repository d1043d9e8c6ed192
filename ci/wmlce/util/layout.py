"""Where everything lies: the clone (recipes, build/) and the user's cache."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from wmlce.util.errors import WmlceError


def find_root(explicit: Path | None = None) -> Path:
    """The clone to work on: --root, $WMLCE_ROOT, the clone that holds this tool, or one around the working
    folder.
    """
    named = explicit or (Path(os.environ["WMLCE_ROOT"]) if os.environ.get("WMLCE_ROOT") else None)
    if named is not None:
        if not (named / "recipes").is_dir():
            raise WmlceError(
                f"{named} holds no folder `recipes`",
                remedy="give --root the top folder of a clone of this project",
            )
        return named.resolve()
    module_path = Path(__file__).resolve()
    for candidate in (*module_path.parents, Path.cwd(), *Path.cwd().parents):
        if (candidate / "recipes").is_dir() and (candidate / "VERSION").is_file():
            return candidate.resolve()
    raise WmlceError(
        "found no clone of this project around the tool or the working folder",
        remedy="run wmlce inside the clone, or name it with --root DIR",
    )


@dataclass(frozen=True)
class Layout:
    """All paths of one clone and one cache; nothing outside them is ever written."""

    root: Path
    cache: Path

    @classmethod
    def locate(cls, root: Path | None = None) -> Layout:
        """Resolve the clone and the cache ($WMLCE_CACHE, else the user's cache folder)."""
        clone = find_root(root)
        named = os.environ.get("WMLCE_CACHE")
        if named:
            cache = Path(named).expanduser()
        else:
            try:
                base = os.environ.get("XDG_CACHE_HOME", "")
                if not os.path.isabs(base):  # the XDG Base Directory Specification ignores such a value
                    base = str(Path.home() / ".cache")
            except RuntimeError as error:
                raise WmlceError(
                    "there is no place for finished packages: HOME is not set",
                    remedy="name a folder for them: WMLCE_CACHE=FOLDER",
                ) from error
            cache = Path(base) / "wmlce"
        return cls(clone, cache if cache.is_absolute() else Path.cwd() / cache)

    @property
    def recipes(self) -> Path:
        return self.root / "recipes"

    @property
    def build(self) -> Path:
        return self.root / "build"

    @property
    def channel(self) -> Path:
        return self.build / "channel"

    @property
    def envs(self) -> Path:
        return self.build / "envs"

    @property
    def images(self) -> Path:
        return self.build / "images"

    @property
    def logs(self) -> Path:
        return self.build / "logs"

    @property
    def sources(self) -> Path:
        """The fetched sources under the names that recipes use: `path: ../../build/sources/<file>`."""
        return self.build / "sources"

    @property
    def work(self) -> Path:
        """Scratch of running builds; whatever a killed run left there is deleted by the next one."""
        return self.build / "work"

    @property
    def cached_sources(self) -> Path:
        return self.cache / "sources"

    @property
    def cached_packages(self) -> Path:
        return self.cache / "packages"

    @property
    def pkgs(self) -> Path:
        """Unpacked packages, shared by builds, tests and environments (links instead of copies)."""
        return self.cache / "pkgs"

    @property
    def locks(self) -> Path:
        return self.cache / "locks"

    def display(self, path: Path) -> str:
        """A path as a person wants to read it: relative to the clone where it lies inside."""
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else str(path)
