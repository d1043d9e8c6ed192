"""`wmlce channel plan --solve`: what pip's resolver makes of the roots for another platform or Python.

First with the versions that recipes/wheels.yaml names. If that does not go, what can be compiled from its
source archive is taken for there; roots without a wheel and a source take the nearest version that has a
wheel; and roots that pip names in a conflict take what it chooses, until it finds an answer or nothing is
left to loosen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from wmlce.channel.plan_platform import Offers, of_wheel
from wmlce.recipes.wheel_lock import WheelConfig, read_config, read_wheel_lock
from wmlce.sources.pypi import Target
from wmlce.sources.relock_wheels import Unresolved, resolve
from wmlce.util.layout import Layout

Say = Callable[[str], None]
_ROUNDS = 20
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass
class Root:
    """One root. pinned: as wheels.yaml has it. asked: what pip was asked for at last; None: left out
    found: the version of pip's answer. why: what was against the pin, or that it has to be compiled
    """

    name: str
    pinned: str
    asked: str | None
    found: str | None = None
    why: str = ""

    @property
    def held(self) -> bool:
        return self.asked == self.pinned

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "held": self.held}


@dataclass
class Solution:
    """roots:    each root, in the order of wheels.yaml
    versions: all distributions of pip's answer
    compiled: those that were taken for there, though they have to be compiled, with their versions
    refusal:  pip's words to the pins, or nothing if it took them
    unsolved: pip's words where it found no answer at all
    """

    roots: list[Root]
    versions: dict[str, str] = field(default_factory=dict)
    compiled: dict[str, str] = field(default_factory=dict)
    refusal: list[str] = field(default_factory=list)
    unsolved: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "roots": [root.to_json() for root in self.roots]}


def solve(layout: Layout, target: Target, offered: Offers, say: Say) -> Solution:
    """Resolve the roots of recipes/wheels.yaml for a target. Nothing is written."""
    config = read_config(layout)
    solution = Solution([_root(text) for text in config.roots])
    try:
        _answer(layout, config, solution, target, say)
        return solution
    except Unresolved as error:
        solution.refusal = list(error.detail) or [error.what]
        say("pip does not take the pins: " + solution.refusal[-1])
    for wheel in read_wheel_lock(layout).packages:
        if not of_wheel(wheel.name, wheel.version, offered)[0] and offered.has_source(
            wheel.name, wheel.version
        ):
            solution.compiled[wheel.name] = wheel.version
    for root in solution.roots:
        _nearest(root, offered)
    for _ in range(_ROUNDS):
        try:
            _answer(layout, config, solution, target, say)
            return solution
        except Unresolved as error:
            words = list(error.detail) or [error.what]
            if not _loosen(solution.roots, words):
                solution.unsolved = words
                return solution
            say("pip refuses: " + words[-1])
    solution.unsolved = [f"no answer after {_ROUNDS} rounds of loosening", *words]
    return solution


def _root(text: str) -> Root:
    return Root(canonicalize_name(Requirement(text).name), text, text)


def _answer(layout: Layout, config: WheelConfig, solution: Solution, target: Target, say: Say) -> None:
    """Ask pip; its answer goes into `solution`."""
    # what is compiled stands for itself
    asked = [root.asked for root in solution.roots if root.asked and root.name not in solution.compiled]
    answer = resolve(layout, config.model_copy(update={"roots": asked}), (), say, target, solution.compiled)
    solution.versions = {name: item.version for name, item in sorted(answer.items())}
    for root in solution.roots:
        root.found = solution.versions.get(root.name) if root.asked is not None else None


def _nearest(root: Root, offered: Offers) -> None:
    """Without a wheel of the pinned version, ask for the nearest one that has a wheel."""
    pin = _pin(root.pinned)
    if pin is None:
        return
    there, how = of_wheel(root.name, pin, offered)
    if there:
        return
    root.why = how
    if offered.has_source(root.name, pin):
        return
    near = nearest(pin, offered.versions(root.name))
    root.asked = f"{root.name}=={near}" if near is not None else None


def _pin(text: str) -> str | None:
    """The version of NAME==VERSION."""
    exact = [spec.version for spec in Requirement(text).specifier if spec.operator == "=="]
    return exact[0] if exact else None


def nearest(pin: str, versions: Iterable[str]) -> str | None:
    """The same version of another build, else the next newer release, else the newest older one."""
    known: dict[Version, str] = {}
    for text in versions:
        try:
            known[Version(text)] = text
        except InvalidVersion:
            continue
    wanted = Version(pin)
    same = [version for version in known if version.public == wanted.public]
    releases = sorted(version for version in known if not version.is_prerelease)
    newer = [version for version in releases if version.release > wanted.release]
    chosen = same or newer[:1] or releases[-1:]
    return known[chosen[0]] if chosen else None


def _loosen(roots: list[Root], words: list[str]) -> bool:
    """Let go of what pip's words name: first of pins of wheels.yaml, then of nearest versions, and if a root
    does not go at any version, of the root. False: they name none.
    """
    named = {name for line in words for name in _names(line)}
    concerned = [root for root in roots if root.asked is not None and root.name in named]
    bound = [root for root in concerned if root.asked != root.name]
    for root in [root for root in bound if root.held] or bound or concerned:
        root.asked = root.name if bound else None
        root.why = root.why if bound and root.why else _told(root, words)
    return bool(concerned)


def _names(line: str) -> set[str]:
    """What in a line of pip's can be a distribution."""
    return {canonicalize_name(word.rstrip(".")) for word in _WORD.findall(line)}


def _told(root: Root, words: list[str]) -> str:
    """The line of pip's that names the root, best that which says what it depends on."""
    lines = [line.strip() for line in words if root.name in _names(line)]
    return min(lines, key=lambda line: "depends on" not in line, default="")


def rows(solution: Solution) -> list[tuple[str, str, str]]:
    """By root, for people: its pin, what pip found, and why."""
    found = []
    for root in solution.roots:
        version = root.found or ("left out" if root.asked is None else "nothing")
        found.append((root.pinned, version, root.why))
    return found


def verdict(solution: Solution) -> str:
    """In a few lines."""
    if solution.unsolved:
        return "\n  ".join(["pip finds no answer:", *solution.unsolved])
    count = f"{len(solution.versions)} distributions, of which {len(solution.compiled)} have to be compiled"
    if not solution.refusal:
        return f"pip takes all pins: {count}"
    left_out = sum(root.asked is None for root in solution.roots)
    moved = sum(not root.held for root in solution.roots) - left_out
    words = "\n  ".join(solution.refusal)
    return f"pip refuses the pins:\n  {words}\nWith {moved} others and without {left_out} roots: {count}"
