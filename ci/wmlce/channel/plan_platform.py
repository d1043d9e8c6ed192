"""`wmlce channel plan`: what a channel for another platform, or for another Python, would lack.

A plan only: of wheels it asks the package index, of recipes it says which have to be compiled there.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from wmlce.recipes.set import RecipeSet
from wmlce.recipes.wheel_lock import read_config, read_wheel_lock
from wmlce.sources.pypi import TARGET_GLIBC, TARGET_PYTHON, ask_indexes
from wmlce.util.errors import WmlceError
from wmlce.util.layout import Layout

MACHINES = {"linux-64": "x86_64", "linux-aarch64": "aarch64", "linux-ppc64le": "ppc64le"}
"""Platforms as conda calls them, and as wheels do."""


@dataclass(frozen=True)
class Line:
    """One recipe. there: can it be had as it is? how: in words"""

    recipe: str
    version: str
    there: bool
    how: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def target(platform: str, python: tuple[int, ...]) -> dict[str, Any]:
    """What the index client chooses files by."""
    machine = MACHINES[platform]
    old = {"x86_64": ("manylinux2014", "manylinux2010", "manylinux1", "linux")}
    names = [f"manylinux_2_{minor}_{machine}" for minor in range(TARGET_GLIBC, 4, -1)]
    names += [f"{name}_{machine}" for name in old.get(machine, ("manylinux2014", "linux"))]
    abi = f"cp{''.join(map(str, python))}"
    return {"version": list(python), "abis": [abi, "abi3", "none"], "platforms": names}


def read_python(text: str | None) -> tuple[int, ...]:
    """3.12 -> (3, 12); the channel's own without one."""
    if text is None:
        return tuple(TARGET_PYTHON)
    found = re.fullmatch(r"(3)\.(\d{1,2})", text)
    if found is None:
        raise WmlceError(f"--python {text} is no version of Python", remedy="write it as 3.12")
    return int(found[1]), int(found[2])


def plan(layout: Layout, platform: str, python: tuple[int, ...], say: Callable[[str], None]) -> list[Line]:
    """By recipe, what is there for a platform and a Python."""
    if platform not in MACHINES:
        raise WmlceError(
            f"{platform} is no platform that wmlce can plan for", remedy=f"there are: {', '.join(MACHINES)}"
        )
    wheels = read_wheel_lock(layout)
    config = read_config(layout)
    with tempfile.TemporaryDirectory(prefix="wmlce-") as folder:
        say(f"asking pip's indexes for {len(wheels.packages)} packages")
        names = sorted({wheel.name for wheel in wheels.packages})
        listed = (
            ask_indexes(Path(folder), say, listing=names, target=target(platform, python)).listed
            if names
            else {}
        )
    lines = []
    recipes = RecipeSet(layout)
    for wheel in wheels.packages:
        there, how = _of_wheel(wheel.version, listed[wheel.name])
        lines.append(Line(config.conda_name(wheel.name), wheel.version, there, how))
    for name in recipes.of(None):
        recipe = recipes.by_name[name]
        if recipe.generated:
            continue
        version = recipe.outputs[0].version
        if all(output.noarch for output in recipe.outputs):
            lines.append(Line(name, version, True, "the same for every platform"))
        else:
            lines.append(Line(name, version, False, f"has to be compiled on {platform}"))
    return sorted(lines, key=lambda line: (line.there, line.how, line.recipe))


def _of_wheel(version: str, listed: Mapping[str, Any]) -> tuple[bool, str]:
    if listed["error"]:
        return False, f"unknown: {str(listed['error']).splitlines()[0]}"
    fitting = [item for item in listed["files"] if item["rank"] is not None and not item["yanked"]]
    sources = {_public(item["version"]) for item in listed["files"] if item["rank"] is None}
    versions = {_public(item["version"]) for item in fitting}
    if _public(version) in versions:
        return True, "wheel"
    if _public(version) in sources:
        return False, "no wheel of this version: has to be compiled from its source archive"
    if versions:
        return False, f"no wheel of this version; the newest with one is {_newest(versions)}"
    return False, "the index has nothing that fits"


def _public(version: str) -> str:
    return version.partition("+")[0]


def _newest(versions: Sequence[str] | set[str]) -> str:
    def key(text: str) -> tuple[bool, Version]:
        try:
            version = Version(text)
            return not version.is_prerelease, version
        except InvalidVersion:
            return False, Version("0")

    return max(versions, key=key)
