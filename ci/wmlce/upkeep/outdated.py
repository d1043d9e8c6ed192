"""`wmlce outdated`: for every locked package the newest version that its archive offers, and what holds it
back.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from wmlce.recipes.variant import read_all
from wmlce.recipes.wheel_lock import WheelLock, config_path, read_config, read_wheel_lock
from wmlce.sources.debian import open_suite
from wmlce.sources.model import ARCHIVES, SUITE, LockedSource, read_source_lock
from wmlce.sources.pypi import ask_indexes
from wmlce.sources.suite import Suite
from wmlce.upkeep.advisories import Advisories
from wmlce.util.errors import WmlceError
from wmlce.util.layout import Layout
from wmlce.util.templates import rendered

Say = Callable[[str], None]


def id_of(package: str, origin: str, wheel: bool) -> str:
    """The package's name, with its archive where it is a source: of certifi there are both."""
    return package if wheel else f"{package} ({origin})"


class UnknownPackage(WmlceError):
    """A package was named that no lock file has."""


@dataclass
class Standing:
    """How a locked package stands.

    wheel:   is it of wheels.lock.yaml? Otherwise it is of sources.lock.yaml
    newest:  None where the archive could not be asked, which `problem` then says
    root:    is the version written in wheels.yaml (or a recipe's sources), rather than chosen by pip?
    held:    what speaks against the newest version, in words: comments `held:`, other packages' needs
    holders: of `held` what other packages need, by their names; VARIANT:NAME for those of variants
    closes:  advisories that are about the locked version and not about the newest one
    remain:  those that are about both
    """

    package: str
    origin: str
    recipes: list[str]
    version: str
    wheel: bool = False
    newest: str | None = None
    root: bool = False
    held: list[str] = field(default_factory=list)
    holders: dict[str, str] = field(default_factory=dict)
    closes: list[str] = field(default_factory=list)
    remain: list[str] = field(default_factory=list)
    problem: str | None = None

    @property
    def id(self) -> str:
        return id_of(self.package, self.origin, self.wheel)

    def is_named(self, names: Iterable[str]) -> bool:
        """Is it among these, by its archive's name or by its recipe's?"""
        accepted = {*names, *(canonicalize_name(name) for name in names)}
        return bool(accepted & {self.package, *self.recipes})

    @property
    def moves(self) -> bool:
        return self.newest is not None and self.newest != self.version

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "moves": self.moves}


def find(layout: Layout, packages: Sequence[str], advisories: Advisories, say: Say) -> list[Standing]:
    """All locked packages, or those that are named (by their archive's name, or by their recipe)."""
    require_known(layout, packages)
    wheels = read_wheel_lock(layout)
    entries = read_source_lock(layout)
    standings = _locked(layout, wheels, entries)
    suites = {(entry.package, entry.archive): entry for entry in entries}
    if packages:
        standings = [item for item in standings if item.is_named(packages)]
    of_python = [item for item in standings if not item.origin.startswith("Debian")]
    of_debian = [item for item in standings if item.origin.startswith("Debian")]
    _ask_index(of_python, say)
    _ask_debian(layout, of_debian, suites, say)
    needs = _needs(layout, wheels)
    for item in standings:
        entry = suites.get((item.package, item.origin))
        suite = entry.suite if entry else None
        now = advisories.of(item.package, suite, item.version)
        if item.newest is not None:
            if item.moves and item.wheel:
                item.holders = _against(item.package, item.newest, needs)
                item.held += item.holders.values()
            then = {other.id for other in advisories.of(item.package, suite, item.newest)}
        else:
            then = {other.id for other in now}
        item.closes = sorted(other.id for other in now if other.id not in then)
        item.remain = sorted(other.id for other in now if other.id in then)
    return sorted(standings, key=lambda item: (not item.moves, item.origin, item.package))


def require_known(layout: Layout, packages: Sequence[str]) -> None:
    """An error for names that are of no locked package and no recipe of one."""
    standings = _locked(layout, read_wheel_lock(layout), read_source_lock(layout))
    unknown = [name for name in packages if not any(item.is_named([name]) for item in standings)]
    if unknown:
        raise UnknownPackage(
            f"no lock file has {', '.join(unknown)}",
            remedy="name a package as its archive does, or its recipe",
        )


def _locked(layout: Layout, wheels: WheelLock, entries: Sequence[LockedSource]) -> list[Standing]:
    """All locked packages, of whose archives nobody was asked yet."""
    sources = [
        Standing(
            entry.package,
            entry.archive,
            list(entry.recipes),
            entry.version,
            root=True,
            held=_held_by_recipes(layout, entry.recipes),
        )
        for entry in entries
    ]
    return [*_of_wheels(layout, wheels), *sources]


def _of_wheels(layout: Layout, lock: WheelLock) -> list[Standing]:
    comments = root_comments(config_path(layout).read_text()) if config_path(layout).is_file() else {}
    roots = {canonicalize_name(Requirement(text).name) for text in lock.roots}
    config = read_config(layout)
    return [
        Standing(
            wheel.name,
            ARCHIVES[wheel.origin],
            [config.conda_name(wheel.name)],
            wheel.version,
            wheel=True,
            root=canonicalize_name(wheel.name) in roots,
            held=list(filter(None, [comments.get(canonicalize_name(wheel.name))])),
        )
        for wheel in lock.packages
    ]


def root_comments(text: str) -> dict[str, str]:
    """Why roots of wheels.yaml stay at their versions, by their names. A comment `held: REASON` behind a root
    is about that one; above roots, about all down to the next comment or empty line. Other comments are
    headings.
    """
    comments: dict[str, str] = {}
    inside, above = False, False
    comment: list[str] = []
    for line in text.splitlines():
        word = line.strip()
        if word and not line[0].isspace() and not word.startswith("#"):
            inside = word == "roots:"
        root = re.match(r"^\s+-\s+([A-Za-z0-9._-]+)[^#]*(?:#\s*(.*))?$", line)
        if not inside:
            continue
        if word.startswith("#"):
            comment = [*(comment if above else []), word.lstrip("# ")]
        elif not word:
            comment = []
        elif root:
            reason = _held(root[2] or "") or _held(" ".join(comment))
            if reason:
                comments[canonicalize_name(root[1])] = reason
        above = word.startswith("#")
    return comments


def _held(comment: str) -> str | None:
    """The reason that a comment gives for holding a version, if it gives one."""
    match = re.match(r"(?:.*?\s)?held:\s*(.+)", comment)
    return match[1].strip() if match else None


def _held_by_recipes(layout: Layout, recipes: Sequence[str]) -> list[str]:
    """The reasons in comments of the recipe.yaml of the recipes that use a source."""
    reasons_held = []
    for name in recipes:
        path = layout.recipes / name / "recipe.yaml"
        if path.is_file():
            reasons = (_held(line.partition("#")[2].strip()) for line in path.read_text().splitlines())
            reasons_held += [reason for reason in reasons if reason]
    return reasons_held


def _public(version: str) -> str:
    return version.partition("+")[0]


def newest_of(versions: Sequence[str], now: str) -> str:
    """The newest final version; the one that is locked, where there is no newer one."""
    best = now
    for text in versions:
        try:
            version = Version(text)
            if not version.is_prerelease and version > Version(best) and version.public != _public(now):
                best = text
        except InvalidVersion:
            continue
    return best


def _ask_index(items: Sequence[Standing], say: Say) -> None:
    if not items:
        return
    say(f"asking pip's indexes for {len(items)} packages")
    with tempfile.TemporaryDirectory(prefix="wmlce-") as folder:
        answer = ask_indexes(Path(folder), say, listing=sorted({item.package for item in items}))
    for item in items:
        listed = answer.listed[item.package]
        if listed["error"] or not listed["files"]:
            item.problem = str(listed["error"] or "no index that pip asks has it").splitlines()[0]
            continue
        usable = [file["version"] for file in listed["files"] if not file["yanked"]]
        item.newest = newest_of(usable, item.version)


def _ask_debian(
    layout: Layout, items: Sequence[Standing], entries: Mapping[tuple[str, str], LockedSource], say: Say
) -> None:
    suites: dict[str, Suite] = {}
    for item in items:
        entry = entries[item.package, item.origin]
        suite = entry.suite or SUITE
        try:
            if suite not in suites:
                suites[suite] = open_suite(layout, say, suite=suite, sources=True)
                suites[suite].update(force=True)
            offered = suites[suite].offers(entry.kind, item.package)
        except WmlceError as error:
            item.problem = error.message
            continue
        if offered:
            item.newest = offered[0].version
        else:
            item.problem = f"Debian {suite} has no such package any more"


@dataclass(frozen=True)
class _Need:
    """Record that a locked wheel requires another one. who: its name, VARIANT:NAME if it is of a variant."""

    who: str
    version: str
    requirement: Requirement


def _needs(layout: Layout, lock: WheelLock) -> dict[str, list[_Need]]:
    """By package: who of the locked wheels requires it, and how; of variants what they take from the
    channel.
    """
    needs: dict[str, list[_Need]] = {}

    def add(wheels: WheelLock, prefix: str, members: set[str]) -> None:
        for wheel in wheels.packages:
            for text in wheel.requires:
                requirement = Requirement(text)
                name = canonicalize_name(requirement.name)
                if name not in members:
                    need = _Need(f"{prefix}{wheel.name}", wheel.version, requirement)
                    needs.setdefault(name, []).append(need)

    add(lock, "", set())
    for name, variant in read_all(layout).items():
        wheels = read_wheel_lock(layout, variant)
        add(wheels, f"{name}:", {canonicalize_name(wheel.name) for wheel in wheels.packages})
    return needs


def _against(package: str, newest: str, needs: Mapping[str, Sequence[_Need]]) -> dict[str, str]:
    return {
        need.who: f"{need.who} {need.version} requires {need.requirement}"
        for need in needs.get(canonicalize_name(package), ())
        if not need.requirement.specifier.contains(newest, prereleases=True)
    }


def bound_together(layout: Layout, packages: Iterable[str]) -> set[str]:
    """Wheels that bound these from above, or that these bound."""
    requested = {canonicalize_name(name) for name in packages}
    bound: set[str] = set()
    locked = read_wheel_lock(layout).packages
    for wheel in locked:
        name = canonicalize_name(wheel.name)
        for requirement in map(Requirement, wheel.requires):
            other = canonicalize_name(requirement.name)
            if any(part.operator in _BOUNDS for part in requirement.specifier):
                bound |= {other} if name in requested else {name} if other in requested else set()
    return bound & {canonicalize_name(wheel.name) for wheel in locked}


_BOUNDS = frozenset({"==", "===", "~=", "<", "<="})


def report(items: Sequence[Standing]) -> str:
    """The findings as a page in Markdown."""
    return rendered(
        "wmlce.upkeep",
        "outdated.md.j2",
        items=items,
        free=[item for item in items if item.moves and not item.held],
        held=[item for item in items if item.moves and item.held],
        unknown=[item for item in items if item.problem],
    )
