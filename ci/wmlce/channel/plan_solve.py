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
    """One root of the distributions."""

    name: str
    pinned: str
    """The requirement in wheels.yaml."""
    requirement: str | None
    """What pip was asked for last; None if the root is left out."""
    resolved: str | None = None
    """The version that pip chose."""
    why: str = ""
    """What was against the pin, or that the root must be compiled."""

    @property
    def held(self) -> bool:
        return self.requirement == self.pinned

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
        solution.refusal = list(error.detail) or [error.message]
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
            explanation = list(error.detail) or [error.message]
            if not _loosen(solution.roots, explanation):
                solution.unsolved = explanation
                return solution
            say("pip refuses: " + explanation[-1])
    solution.unsolved = [f"no answer after {_ROUNDS} rounds of loosening", *explanation]
    return solution


def _root(text: str) -> Root:
    return Root(canonicalize_name(Requirement(text).name), text, text)


def _answer(layout: Layout, config: WheelConfig, solution: Solution, target: Target, say: Say) -> None:
    """Ask pip; its answer goes into `solution`."""
    # what is compiled stands for itself
    requirements = [
        root.requirement for root in solution.roots if root.requirement and root.name not in solution.compiled
    ]
    answer = resolve(
        layout, config.model_copy(update={"roots": requirements}), (), say, target, solution.compiled
    )
    solution.versions = {name: item.version for name, item in sorted(answer.items())}
    for root in solution.roots:
        root.resolved = solution.versions.get(root.name) if root.requirement is not None else None


def _nearest(root: Root, offered: Offers) -> None:
    """Without a wheel of the pinned version, ask for the nearest one that has a wheel."""
    pin = _pin(root.pinned)
    if pin is None:
        return
    available, how = of_wheel(root.name, pin, offered)
    if available:
        return
    root.why = how
    if offered.has_source(root.name, pin):
        return
    near = nearest(pin, offered.versions(root.name))
    root.requirement = f"{root.name}=={near}" if near is not None else None


def _pin(text: str) -> str | None:
    """The version of NAME==VERSION."""
    exact = [spec.version for spec in Requirement(text).specifier if spec.operator == "=="]
    return exact[0] if exact else None


def nearest(pin: str, versions: Iterable[str]) -> str | None:
    """The same version of another build, else the next newer release, else the newest older one."""
    texts: dict[Version, str] = {}
    for text in versions:
        try:
            texts[Version(text)] = text
        except InvalidVersion:
            continue
    pinned = Version(pin)
    same = [version for version in texts if version.public == pinned.public]
    releases = sorted(version for version in texts if not version.is_prerelease)
    newer = [version for version in releases if version.release > pinned.release]
    chosen = same or newer[:1] or releases[-1:]
    return texts[chosen[0]] if chosen else None


def _loosen(roots: list[Root], explanation: list[str]) -> bool:
    """Let go of what pip's words name: first of pins of wheels.yaml, then of nearest versions, and if a root
    does not go at any version, of the root. False: they name none.
    """
    named = {name for line in explanation for name in _names(line)}
    concerned = [root for root in roots if root.requirement is not None and root.name in named]
    bound = [root for root in concerned if root.requirement != root.name]
    for root in [root for root in bound if root.held] or bound or concerned:
        root.requirement = root.name if bound else None
        root.why = root.why if bound and root.why else _told(root, explanation)
    return bool(concerned)


def _names(line: str) -> set[str]:
    """What in a line of pip's can be a distribution."""
    return {canonicalize_name(word.rstrip(".")) for word in _WORD.findall(line)}


def _told(root: Root, explanation: list[str]) -> str:
    """The line of pip's that names the root, best that which says what it depends on."""
    lines = [line.strip() for line in explanation if root.name in _names(line)]
    return min(lines, key=lambda line: "depends on" not in line, default="")


def rows(solution: Solution) -> list[tuple[str, str, str]]:
    """By root, for people: its pin, what pip found, and why."""
    table = []
    for root in solution.roots:
        version = root.resolved or ("left out" if root.requirement is None else "nothing")
        table.append((root.pinned, version, root.why))
    return table


def verdict(solution: Solution) -> str:
    """In a few lines."""
    if solution.unsolved:
        return "\n  ".join(["pip finds no answer:", *solution.unsolved])
    count = f"{len(solution.versions)} distributions, of which {len(solution.compiled)} have to be compiled"
    if not solution.refusal:
        return f"pip takes all pins: {count}"
    left_out = sum(root.requirement is None for root in solution.roots)
    moved = sum(not root.held for root in solution.roots) - left_out
    explanation = "\n  ".join(solution.refusal)
    return (
        f"pip refuses the pins:\n  {explanation}\nWith {moved} others and without {left_out} roots: {count}"
    )
