"""`wmlce channel plan`: what a channel for another platform, or for another Python, would lack.

A plan only: of wheels it asks the package index, of recipes it says which have to be compiled there.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from wmlce.recipes.model import Recipe
from wmlce.recipes.recipe_set import RecipeSet
from wmlce.recipes.wheel_lock import read_config, read_wheel_lock
from wmlce.sources.debian import open_suite
from wmlce.sources.model import SUITE
from wmlce.sources.pypi import Target, ask_indexes, pytorch_environment
from wmlce.sources.settings import PYTORCH_INDEX, Settings
from wmlce.util.errors import WmlceError
from wmlce.util.layout import Layout
from wmlce.util.platform import of_files
from wmlce.util.python import TARGET, Python

Say = Callable[[str], None]
_SUITES = (SUITE, "trixie")
"""Debian's releases that are asked for the source of another Python."""


@dataclass(frozen=True)
class Line:
    """One recipe of the plan: can it be had as it is, and how?"""

    recipe: str
    version: str
    available: bool
    how: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Offers:
    """What the package indexes have for a target, by project: files with version and rank, the smaller the
    better it fits; None is of a source archive, or of a wheel for other targets.
    """

    def __init__(self, target: Target, names: Iterable[str], built_by_pytorch: Iterable[str], say: Say):
        settings = Settings.from_environment()
        self.files: dict[str, list[dict[str, Any]]] = {}
        self.errors: dict[str, str] = {}
        self._ask(target, names, None, say)
        if settings.pytorch_index and (more := sorted(built_by_pytorch)):
            self._ask(target, more, pytorch_environment(settings), say)

    def _ask(self, target: Target, names: Iterable[str], env: Mapping[str, str] | None, say: Say) -> None:
        projects = sorted({canonicalize_name(name) for name in names})
        if not projects:
            return
        say(f"asking {'PyTorch' if env else 'pip'}'s indexes for {len(projects)} packages")
        with tempfile.TemporaryDirectory(prefix="wmlce-") as folder:
            answer = ask_indexes(Path(folder), say, listing=projects, env=env, target=target)
        for name in projects:
            listed = answer.listed[name]
            self.files.setdefault(name, []).extend(item for item in listed["files"] if not item["yanked"])
            if listed["error"]:
                self.errors[name] = str(listed["error"]).splitlines()[0]

    def versions(self, name: str) -> set[str]:
        """The versions that have a wheel for the target."""
        files = self.files.get(canonicalize_name(name), [])
        return {item["version"] for item in files if item["rank"] is not None}

    def has_source(self, name: str, version: str) -> bool:
        """Is there a source archive of this version? Of a build (+cpu) there is none."""
        files = self.files.get(canonicalize_name(name), [])
        return any(item["version"] == version for item in files if not item["file"].endswith(".whl"))


def read_python(text: str | None) -> Python:
    """3.12; the channel's own without one."""
    if text is None:
        return TARGET
    match = re.fullmatch(r"(3)\.(\d{1,2})", text)
    if match is None:
        raise WmlceError(f"--python {text} is not a version of Python", remedy="write it as 3.12")
    return Python(int(match[1]), int(match[2]))


def plan(layout: Layout, target: Target, say: Say) -> tuple[list[Line], Offers]:
    """By recipe, what is there for a platform and a Python; and what the indexes offer for it."""
    config = read_config(layout)
    wheels = read_wheel_lock(layout).packages
    recipes = RecipeSet(layout, target.platform)
    by_hand = [recipes.by_name[name] for name in recipes.of(None) if not recipes.by_name[name].generated]
    repacked = {recipe.name: _repacked(recipe) for recipe in by_hand}
    offered = Offers(
        target,
        [
            *(wheel.name for wheel in wheels),
            *(Requirement(root).name for root in config.roots),
            *(file.split("-")[0] for file in repacked.values() if file and file.endswith(".whl")),
        ],
        [wheel.name for wheel in wheels if wheel.origin == "pytorch-cpu"],
        say,
    )
    lines = []
    for wheel in wheels:
        available, how = of_wheel(wheel.name, wheel.version, offered)
        lines.append(Line(config.conda_name(wheel.name), wheel.version, available, how))
    locked_for = of_files(wheel.file for wheel in wheels)
    for recipe in by_hand:
        version = recipe.outputs[0].version
        packed = repacked[recipe.name]
        if all(output.noarch for output in recipe.outputs):
            available, how = True, "the same for every platform"
        elif recipe.name == "python" and target.python != TARGET:
            version, (available, how) = str(target.python), (False, _source_of(target.python, layout, say))
        elif target.platform in locked_for and (target.python == TARGET or not _needs_python(recipe)):
            available, how = True, f"the channel has it, and it holds for Python {target.python}"
        elif packed and packed.endswith(".whl"):
            name, packed_version = packed.split("-")[:2]
            available, how = of_wheel(name, packed_version, offered)
        elif packed:
            available, how = False, f"packs Debian's files: to be locked for {target.platform.debian}"
        else:
            available, how = False, f"has to be compiled on {target.platform.subdir}"
        lines.append(Line(recipe.name, version, available, how))
    return sorted(lines, key=lambda line: (line.available, line.how, line.recipe)), offered


def _repacked(recipe: Recipe) -> str | None:
    """The file with another's binaries that it packs: a wheel, or a Debian package."""
    files = [Path(str(entry.get("path", ""))).name for entry in recipe.source_entries()]
    return next((file for file in files if of_files([file])), None)


def _needs_python(recipe: Recipe) -> bool:
    """Is it built with Python, or does it run with it?"""
    for output in recipe.outputs:
        needs = output.rendered.get("requirements") or {}
        specs = [spec for section in ("build", "host", "run") for spec in needs.get(section) or ()]
        if any(isinstance(spec, str) and spec.split()[0] in ("python", "python_abi") for spec in specs):
            return True
    return False


def _source_of(python: Python, layout: Layout, say: Say) -> str:
    """Where the source of another Python is to be had."""
    name = f"python{python}"
    for suite in _SUITES:
        try:
            release = open_suite(layout, say, suite=suite, sources=True)
            release.update()
            candidates = release.offers("debian-source", name)
        except WmlceError as error:
            return f"unknown whether Debian has its source: {error.message}"
        if candidates:
            return f"Debian {suite} has the source {name} {candidates[0].version}: to be locked and compiled"
    return f"Debian has no source {name} in {' or '.join(_SUITES)}: it has to come from elsewhere"


def of_wheel(name: str, version: str, offered: Offers) -> tuple[bool, str]:
    """Is there a wheel of this version for the target, and if not, what is there?"""
    canonical = canonicalize_name(name)
    if canonical in offered.errors:
        return False, f"unknown: {offered.errors[canonical]}"
    public, _, local = version.partition("+")
    fitting = offered.versions(name)
    if version in fitting or (not local and public in {_public(item) for item in fitting}):
        return True, "wheel"
    if public in {_public(item) for item in fitting}:
        text = f"no wheel of the build +{local}, only another one of {public}"
        index = Settings.from_environment().pytorch_index
        return False, text if index else f"{text}; PyTorch's index is not asked ({PYTORCH_INDEX})"
    if offered.has_source(name, version):
        return False, "no wheel of this version: has to be compiled from its source archive"
    if fitting:
        return False, f"no wheel of this version; the newest with one is {newest(fitting)}"
    return False, "the index has nothing that fits"


def _public(version: str) -> str:
    return version.partition("+")[0]


def newest(versions: Iterable[str]) -> str:
    """The newest release, or the newest at all."""

    def key(text: str) -> tuple[bool, Version]:
        try:
            version = Version(text)
            return not version.is_prerelease, version
        except InvalidVersion:
            return False, Version("0")

    return max(versions, key=key)
