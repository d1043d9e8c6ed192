"""build/channel/beside-conda-forge: the part of the channel for those who use conda-forge too.

A channel that can be used alone has to hold Python, OpenSSL and some eighty more packages of conda-forge's
names, and with strict priority each of them hides conda-forge's. So the channel holds a second one: links to
those of its packages that recipes/beside-conda-forge.yaml lists, with an index of their own. Builds of
variants are not in it: they need libraries in the places that they have in this channel.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from wmlce.recipes.variant import read_all
from wmlce.util import platform
from wmlce.util.errors import WmlceError
from wmlce.util.files import link_or_copy
from wmlce.util.layout import Layout

FOLDER = "beside-conda-forge"
LIST = "beside-conda-forge.yaml"


def listed(layout: Layout) -> frozenset[str]:
    """The names of the packages that it holds; none where the clone has no such list."""
    path = layout.recipes / LIST
    if not path.is_file():
        return frozenset()
    try:
        names = yaml.safe_load(path.read_text()) or []
    except yaml.YAMLError as error:
        raise WmlceError(
            f"recipes/{LIST} is not YAML", detail=str(error).splitlines()[:6], remedy="correct it"
        ) from error
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise WmlceError(
            f"recipes/{LIST} is not a list of package names", remedy="write one name a line: - NAME"
        )
    return frozenset(names)


def members(layout: Layout, channel: Path) -> set[str]:
    """`subdir/file` of every package of `channel`, which is indexed, that belongs into it."""
    names = listed(layout)
    variants = read_all(layout).values()
    keys = set()
    for repodata in channel.glob("*/repodata.json"):
        document: dict[str, Any] = json.loads(repodata.read_text())
        for file, entry in document.get("packages.conda", {}).items():
            if entry["name"] in names and not any(variant.owns_build(entry["build"]) for variant in variants):
                keys.add(f"{repodata.parent.name}/{file}")
    return keys


def is_current(layout: Layout, channel: Path) -> bool:
    """Does `channel` hold it as the list says, indexed?"""
    folder = channel / FOLDER
    expected = members(layout, channel)
    if not expected:
        return not folder.exists()
    present = {str(path.relative_to(folder)) for path in folder.glob("*/*.conda")}
    return present == expected and all(
        (folder / subdir / "repodata.json").is_file() for subdir in platform.of_this_machine().subdirs
    )


def fill(layout: Layout, channel: Path) -> Path | None:
    """Link its packages from `channel`, which is indexed; returns its folder, to be indexed, if it has
    any.
    """
    expected = members(layout, channel)
    for key in sorted(expected):
        link_or_copy(channel / key, channel / FOLDER / key)
    return channel / FOLDER if expected else None
