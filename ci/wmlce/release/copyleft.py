"""Which packages of a release are under the GNU licences, and where their sources are.

Who passes on such a binary has to pass on its source, too. What is compiled here has it in the bundle of
sources. A package that is taken as a binary (a wheel, a .deb) has it elsewhere, and the release says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from wmlce.recipes.set import RecipeSet
from wmlce.sources.store import SourceLock

_GNU = re.compile(r"\b[AL]?GPL-")
_BINARY = (".whl", ".deb")


def sources(
    entries: Iterable[Mapping[str, Any]], recipes: RecipeSet, lock: SourceLock
) -> dict[str, dict[str, Any]]:
    """Package name -> its version, its licence, and the locked source files of its recipe; none where the
    recipe takes binaries.
    """
    files: dict[str, list[str]] = {}
    for item in lock.by_file.values():
        for name in item.entry.recipes:
            if not item.file.name.endswith(_BINARY):
                files.setdefault(name, []).append(item.file.name)
    found = {}
    for entry in entries:
        if not _GNU.search(str(entry.get("license") or "")):
            continue
        recipe = recipes.by_output.get(str(entry["name"]))
        found[str(entry["name"])] = {
            "version": str(entry["version"]),
            "license": str(entry["license"]),
            "sources": sorted(files.get(recipe.name, [])) if recipe is not None else [],
        }
    return dict(sorted(found.items()))
