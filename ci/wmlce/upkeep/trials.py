"""Building a tree with moves, and finding the move because of which a recipe fails."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import networkx as nx

from wmlce.builder.plan import Plan
from wmlce.builder.schedule import Builder
from wmlce.channel import published
from wmlce.sources.store import replan_when_moved
from wmlce.upkeep.moves import Group
from wmlce.upkeep.resolve import plan_of
from wmlce.util.errors import WmlceError
from wmlce.util.layout import Layout
from wmlce.util.progress import Progress


def build(layout: Layout, progress: Progress, jobs: int, requested: Sequence[str] = ()) -> list[WmlceError]:
    """Build all that can be built; returns why recipes failed. What stops everything (a source that cannot be
    fetched, a full disk) is raised.
    """

    def attempt() -> list[WmlceError]:
        builder = Builder(layout, plan_of(layout, requested), progress, jobs=jobs, keep_going=True)
        try:
            builder.run()
        except WmlceError:
            if not builder.failures or any(failure.recipe is None for failure in builder.failures):
                raise
        return builder.failures

    with published.building(layout, progress.say):
        return replan_when_moved(attempt, progress.say)


def suspects(plan: Plan, groups: Sequence[Group], recipe: str) -> list[Group]:
    """Groups that may be why a recipe fails: those that move it or what it needs, the nearest first; then
    those that brought it, as they need it.
    """
    graph = plan.graph
    if recipe not in graph:
        return []
    below: dict[str, int] = dict(nx.single_source_shortest_path_length(graph, recipe))
    above: dict[str, int] = dict(nx.single_target_shortest_path_length(graph, recipe))
    far = len(graph)
    ranked = []
    for group in groups:
        names = {name for move in group for name in move.recipes}
        near = [below[name] for name in names if name in below]
        near += [far + above[name] for name in names if name in above]
        if near:
            ranked.append((min(near), group[0].id, group))
    return [group for _, _, group in sorted(ranked, key=lambda item: item[:2])]


def keep_log(layout: Layout, failure: WmlceError, number: int) -> Path | None:
    """A copy of a failure's log, which the next build of that recipe would overwrite."""
    if failure.log is None:
        return None
    log = layout.root / failure.log
    if not log.is_file():
        return None
    copy = layout.build / "update" / "logs" / f"{number}-{log.name}"
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(log, copy)
    return copy


_TELLING = re.compile(
    r"(?i)\berror\b|error:|exception:|\bfailed\b|\bassert|cannot |can't |not found|no such|undefined|refus"
)
_STAMP = re.compile(r"^\[ *[0-9.]+\] ?")


def reason(error: WmlceError) -> str:
    """Why, in one or two lines: the error's sentence, and the first line of its detail that tells."""
    lines = [" ".join(_STAMP.sub("", line).split()) for line in error.detail]
    lines = [line for line in lines if line and not line.startswith("(")]
    telling = [line for line in lines if _TELLING.search(line)]
    hint = telling[:1] or lines[-1:]
    return f"{error.message}: {hint[0]}" if hint else error.message


def refusal(error: WmlceError) -> str:
    """The error's message with everything that the resolver reported."""
    lines = [" ".join(line.split()) for line in error.detail]
    lines = [line for line in lines if line and not line.startswith("sha256 ")]
    unique = dict.fromkeys(re.sub(r"^ERROR: ", "", line) for line in lines)
    return f"{error.message}: {'; '.join(unique)}" if unique else error.message
