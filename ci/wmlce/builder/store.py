"""Finished packages in the cache, by recipe and content hash.

The manifest is written last, so a package whose build was killed at any moment is simply not there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wmlce.util.files import store_atomic, write_json
from wmlce.util.layout import Layout


@dataclass(frozen=True)
class PackageFile:
    """A finished package: where it lies, and its entry in the channel's repodata."""

    path: Path
    subdir: str
    entry: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.entry["name"])

    @property
    def file(self) -> str:
        return self.path.name

    @property
    def sha256(self) -> str:
        return str(self.entry["sha256"])

    @property
    def size(self) -> int:
        return int(self.entry["size"])


class Store:
    """`$WMLCE_CACHE/packages`."""

    def __init__(self, layout: Layout) -> None:
        self.folder = layout.cached_packages

    def _manifest(self, recipe: str, content_hash: str) -> Path:
        return self.folder / "finished" / recipe / f"{content_hash}.json"

    def find(self, recipe: str, content_hash: str) -> list[PackageFile] | None:
        """The packages of a recipe at this content, or None if they are not (wholly) there."""
        path = self._manifest(recipe, content_hash)
        try:
            listed = json.loads(path.read_text())["packages"]
            found = [
                PackageFile(self.folder / item["subdir"] / item["file"], item["subdir"], item["entry"])
                for item in listed
            ]
            if all(package.path.stat().st_size == package.size for package in found):
                return found or None
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        return None

    def add(self, recipe: str, content_hash: str, built: Sequence[PackageFile]) -> list[PackageFile]:
        """Take freshly built files into the cache (they are moved)."""
        kept = []
        for package in built:
            target = self.folder / package.subdir / package.file
            store_atomic(package.path, target)
            kept.append(PackageFile(target, package.subdir, package.entry))
        listed = [{"subdir": p.subdir, "file": p.file, "entry": dict(p.entry)} for p in kept]
        write_json(self._manifest(recipe, content_hash), {"recipe": recipe, "packages": listed})
        return kept

    def forget(self, recipe: str, content_hash: str) -> None:
        """Make `find` answer None, so that the recipe is built again."""
        self._manifest(recipe, content_hash).unlink(missing_ok=True)
