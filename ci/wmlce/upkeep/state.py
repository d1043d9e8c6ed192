"""What an update has found and done so far, in its worktree: an interrupted one goes on from there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from wmlce.sources.model import LockedSource
from wmlce.upkeep.moves import Group, Held, Move
from wmlce.util.errors import WmlceError
from wmlce.util.files import write_atomic
from wmlce.util.layout import Layout


@dataclass(frozen=True)
class Broken:
    """Moves that were put back. stage: sources, resolve, build or verify. log: the kept one, whole."""

    moves: tuple[Move, ...]
    stage: str
    reason: str
    log: str | None = None


@dataclass
class State:
    """packages, hold: what was asked for
    groups:   what was to move
    fresh:    renewed sources, by move
    before:   content hash of every recipe of the base, and the locked versions of its wheels
    seconds:  how long each stage took, over all calls
    verified: git's digest of the recipes whose channel passed
    findings: what the checks found that no move is to blame for
    commit:   of the finished update; empty where nothing moved
    """

    packages: list[str]
    hold: list[str]
    verify: bool
    groups: list[Group]
    held: list[Held]
    fresh: dict[str, LockedSource] = field(default_factory=dict)
    broken: list[Broken] = field(default_factory=list)
    before: dict[str, str] = field(default_factory=dict)
    wheels_before: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    verified: str | None = None
    findings: list[str] = field(default_factory=list)
    commit: str | None = None
    renewed: bool = False
    day: str = ""

    def active(self) -> list[Group]:
        """Groups that are not put back."""
        gone = {move.id for broken in self.broken for move in broken.moves}
        return [group for group in self.groups if not any(move.id in gone for move in group)]

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add the time inside to a stage's."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.monotonic() - started

    def write(self, layout: Layout) -> None:
        write_atomic(path_of(layout), _DOCUMENT.dump_json(self, indent=1, exclude_none=True).decode() + "\n")


_DOCUMENT = TypeAdapter(State)


def path_of(layout: Layout) -> Path:
    return layout.build / "update" / "state.json"


def read(layout: Layout) -> State | None:
    """Read the state of a worktree; None if the update was stopped before it had a plan."""
    path = path_of(layout)
    if not path.is_file():
        return None
    try:
        return _DOCUMENT.validate_json(path.read_text())
    except ValueError as error:
        raise WmlceError(
            f"{path} is damaged: {error}",
            remedy="drop this update (docs/cluster/update.md) and start it again",
        ) from error
