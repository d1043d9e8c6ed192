"""Bringing build/channel up to date with the recipes: build what changed, keep what is current, publish."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wmlce.builder.plan import Plan
from wmlce.builder.schedule import Builder, Built
from wmlce.builder.store import PackageFile, Store
from wmlce.channel import published
from wmlce.recipes.recipe_set import RecipeSet, load_source_lock
from wmlce.recipes.variant import find
from wmlce.sources.store import SourceLock, replan_when_moved
from wmlce.util.errors import WmlceError
from wmlce.util.layout import Layout
from wmlce.util.progress import Progress


@dataclass(frozen=True)
class Update:
    """results: by recipe. packages: how many the channel has. changed: was a new channel published?
    stand_ins: Debian revisions that are not the locked ones, in words
    phases: what else took time: name, start and seconds, since the command's start
    """

    results: Mapping[str, Built]
    packages: int
    changed: bool
    stand_ins: list[str]
    phases: Sequence[tuple[str, float, float]]

    @property
    def fresh(self) -> int:
        """Recipes that were built now."""
        return sum(built.fresh for built in self.results.values())


def forecast(
    layout: Layout, requested: Sequence[str], *, force: bool = False, variant: str | None = None
) -> dict[str, dict[str, Any]]:
    """What `update` would find: by recipe, in the order of building, its version, its content hash, the
    recipes that it needs, whether its packages are finished, whether they are tested with what is installed
    with them, and how many bytes have to be fetched to build them, as far as the lock files know.
    """
    lock = load_source_lock(layout)
    plan = Plan(layout, _recipes(layout, variant), lock, requested, variant=variant)
    store = Store(layout)
    anew = set(plan.requested) if force else set()
    report = {}
    for name, facts in plan.describe().items():
        finished = name not in anew and store.lists(name, facts["hash"])
        absent = [item for item in plan.sources(name).locked if not (finished or lock.present(item))]
        report[name] = {
            **facts,
            "version": plan.recipes.by_name[name].outputs[0].version,
            "finished": finished,
            "tested": finished and plan.test_hash(name) in store.tested(name, facts["hash"]),
            "fetch": sum(item.file.size or 0 for item in absent),
        }
    return report


def _recipes(layout: Layout, variant: str | None) -> RecipeSet:
    if variant is not None:
        find(layout, variant)
    return RecipeSet(layout)


def update(
    layout: Layout,
    progress: Progress,
    requested: Sequence[str],
    *,
    jobs: int,
    keep_going: bool = False,
    force: bool = False,
    variant: str | None = None,
) -> Update:
    """Build `requested` (all when empty) with everything that they need, and publish the channel. Packages
    of variants that it already has stay, as long as they are what would be built.

    variant: build this one, too; `requested` are then first looked for in it.
    force: build the requested recipes even if they are built; other bytes than before are refused.
    """

    def attempt() -> Update:
        recipes = _recipes(layout, variant)
        lock = load_source_lock(layout)
        for line in lock.stand_ins():
            progress.say(f"NOTE: {line}")
        plan = Plan(layout, recipes, lock, requested, variant=variant)
        forced = plan.requested if force else ()
        builder = Builder(layout, plan, progress, jobs=jobs, keep_going=keep_going, force=forced)
        results = builder.run()
        finished = []
        for name, built in results.items():
            finished += _as_published(layout, plan, name, built.packages, progress)
        finished += _others_still_current(layout, recipes, lock, set(results), progress.say)
        with builder.measured("publish"):
            changed = published.publish(layout, finished, recipes.by_output, progress.say)
        return Update(results, len(finished), changed, lock.stand_ins(), builder.phases)

    with published.building(layout, progress.say):
        return replan_when_moved(attempt, progress.say)


def _as_published(
    layout: Layout, plan: Plan, name: str, packages: list[PackageFile], progress: Progress
) -> list[PackageFile]:
    """A file name stands for one content, on every machine that has it: where the channel already has these
    names with other bytes (the cache was lost, and the build gives other bytes each time), its own stay.
    """
    contents = published.contents(layout.channel)
    if all(contents.get(package.key, package.sha256) == package.sha256 for package in packages):
        return packages
    entries = published.repodata(layout.channel)
    earlier = []
    for package in packages:
        entry = entries.get(package.subdir, {}).get(package.file, {})
        old = PackageFile(layout.channel / package.key, package.subdir, entry)
        if entry.get("sha256") != contents.get(package.key) or not old.whole():
            return packages  # what is there is damaged: this build repairs it
        earlier.append(old)
    progress.say(f"{name} was built again with different contents: the channel keeps the published files")
    return Store(layout).adopt(name, plan.content_hash(name), earlier)


def _others_still_current(
    layout: Layout, recipes: RecipeSet, lock: SourceLock, done: set[str], say: Callable[[str], None]
) -> list[PackageFile]:
    """Packages of recipes that were not asked for: kept where they are published and still what would be
    built.
    """
    contents = published.contents(layout.channel)
    others = [name for name in recipes.by_name if name not in done]
    current: list[PackageFile] = []
    if not contents:
        return current
    store = Store(layout, say)
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
            content = plan.content_hash(name)
            if plan.test_hash(name) not in store.tested(name, content):
                continue
            packages = store.find(name, content)
        except WmlceError:
            continue  # its packages are no longer current
        for package in packages or []:
            if contents.get(f"{package.subdir}/{package.file}") == package.sha256:
                current.append(package)
    return current
