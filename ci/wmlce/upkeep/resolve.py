"""Which moves go together: pip decides, and where it refuses all of them, groups are tried by halves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from packaging.utils import canonicalize_name

from wmlce.builder.plan import Plan
from wmlce.recipes.recipe_set import RecipeSet, load_source_lock
from wmlce.recipes.wheel_lock import read_wheel_lock
from wmlce.sources import relock_wheels
from wmlce.sources.model import LockedSource
from wmlce.upkeep import edits
from wmlce.upkeep.moves import Group, Move
from wmlce.upkeep.worktree import Worktree
from wmlce.util import project_files
from wmlce.util.errors import WmlceError
from wmlce.util.layout import Layout

Say = Callable[[str], None]


@dataclass
class Answer:
    """accepted: what the tree now has. refused: the groups left out, and the words of who refused them."""

    accepted: list[Group]
    refused: list[tuple[Group, WmlceError]] = field(default_factory=list)


def plan_of(layout: Layout, requested: Sequence[str] = ()) -> Plan:
    """The builder's plan of a tree whose files may have changed since it was last planned."""
    project_files.tree_state.cache_clear()
    plan = Plan(layout, RecipeSet(layout), load_source_lock(layout), requested)
    plan.describe()
    return plan


class Resolver:
    """Writes sets of moves into a tree. fresh: the renewed sources, by move. stuck: wheels that stay at
    their version whatever pip would rather have.
    """

    def __init__(
        self, tree: Worktree, fresh: Mapping[str, LockedSource], stuck: Collection[str], say: Say
    ) -> None:
        self.tree = tree
        self.fresh = fresh
        self.stuck = {canonicalize_name(name) for name in stuck}
        self.say = say

    def resolve(self, groups: Sequence[Group]) -> Answer:
        """The tree with as many of the groups as go together."""
        answer = Answer([])
        self._add(answer, list(groups))
        wheels = any(move.wheel for group in answer.accepted for move in group)
        if not wheels and any(move.wheel for group, _ in answer.refused for move in group):
            self._require_working_pip()
        if answer.refused:
            self._write(answer.accepted)
        return answer

    def _add(self, answer: Answer, groups: list[Group]) -> None:
        if not groups:
            if not answer.accepted:
                self._write([])
            return
        try:
            self._write([*answer.accepted, *groups])
        except WmlceError as error:
            if len(groups) == 1:
                answer.refused.append((groups[0], error))
                titles = ", ".join(move.title() for move in groups[0])
                self.say(f"without {titles}: {error.message}")
                return
            half = len(groups) // 2
            self.say(f"{len(groups)} moves do not go together: trying {half} of them")
            self._add(answer, groups[:half])
            self._add(answer, groups[half:])
        else:
            answer.accepted += groups

    def _write(self, groups: Sequence[Group], loose: Collection[str] = ()) -> None:
        """The tree with these moves, so far that it can be planned. Of what pip chose else nothing moves; if
        that does not go, what the moved ones need does (`loose`).
        """
        moves: list[Move] = [move for group in groups for move in group]
        layout = self.tree.layout
        self.tree.reset()
        edits.write_sources(self.tree, moves, self.fresh)
        try:
            edits.write_wheels(self.tree, moves, loose, self.say)
        except WmlceError:
            wheels = [move.package for move in moves if move.wheel]
            more = edits.dependencies(layout, wheels) - self.stuck - set(wheels)
            if loose or not more:
                raise
            self._write(groups, more)
            return
        plan_of(layout)

    def _require_working_pip(self) -> None:
        """An error if pip cannot even resolve what is locked: then the moves are not to blame."""
        self.tree.reset()
        locked = read_wheel_lock(self.tree.layout).packages
        relock_wheels.lock(self.tree.layout, self.say, [f"{wheel.name}=={wheel.version}" for wheel in locked])
