"""Bringing build/channel up to date with the recipes: build what changed, keep what is current, publish."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wmlce.builder.plan import Plan
from wmlce.builder.schedule import Builder, Built
from wmlce.builder.store import PackageFile, Store
from wmlce.channel import published
from wmlce.recipes.set import RecipeSet, load_source_lock
from wmlce.sources.store import SourceLock, replan_when_moved
from wmlce.util.errors import WmlceError
from wmlce.util.layout import Layout
from wmlce.util.locks import file_lock
from wmlce.util.progress import Progress


@dataclass(frozen=True)
class Update:
    """results: by recipe. packages: how many the channel has. changed: was a new channel published?
    stand_ins: Debian revisions that are not the locked ones, in words
    """

    results: Mapping[str, Built]
    packages: int
    changed: bool
    stand_ins: list[str]

    @property
    def fresh(self) -> int:
        """Recipes that were built now."""
        return sum(built.fresh for built in self.results.values())


def update(
    layout: Layout,
    progress: Progress,
    requested: Sequence[str],
    *,
    jobs: int,
    keep_going: bool = False,
    force: bool = False,
) -> Update:
    """Build `requested` (all when empty) with everything that they need, and publish the channel.

    force: build the requested recipes even if they are built.
    """

    def attempt() -> Update:
        recipes = RecipeSet(layout)
        lock = load_source_lock(layout)
        for line in lock.stand_ins():
            progress.say(f"NOTE: {line}")
        plan = Plan(layout, recipes, lock, requested)
        if force:
            for name in plan.requested:
                Store(layout).forget(name, plan.content_hash(name))
        results = Builder(layout, plan, progress, jobs=jobs, keep_going=keep_going).run()
        finished = [package for built in results.values() for package in built.packages]
        finished += _others_still_current(layout, recipes, lock, set(results))
        changed = published.publish(layout, finished)
        return Update(results, len(finished), changed, lock.stand_ins())

    with file_lock(
        layout.build / "locks" / "channel.lock", "building this clone's channel", say=progress.say
    ):
        return replan_when_moved(attempt, progress.say)


def _others_still_current(
    layout: Layout, recipes: RecipeSet, lock: SourceLock, done: set[str]
) -> list[PackageFile]:
    """Packages of recipes that were not asked for: kept where they are published and still what would be
    built.
    """
    there = published.contents(layout.channel)
    others = [name for name in recipes.by_name if name not in done]
    kept: list[PackageFile] = []
    if not there:
        return kept
    store = Store(layout)
    plans: dict[str, Plan] = {}
    try:
        together = Plan(layout, recipes, lock, others)
        if together.order:
            plans = dict.fromkeys(others, together)
    except WmlceError:
        pass  # a recipe that is not asked for may be broken; the others are then looked at one by one
    for name in others:
        try:
            plan = plans.get(name) or Plan(layout, recipes, lock, [name])
            found = store.find(name, plan.content_hash(name))
        except WmlceError:
            continue  # its packages are no longer current
        for package in found or []:
            if there.get(f"{package.subdir}/{package.file}") == package.sha256:
                kept.append(package)
    return kept
