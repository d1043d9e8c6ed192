"""`wmlce channel build --recipes DIR`: a site's own recipes, built against this channel into a second one.

They are built, tested and checked as the channel's own are, and may need its packages. None may have the name
of one of these: clients would have to choose between the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from wmlce.builder.plan import Plan
from wmlce.builder.schedule import Builder, Built
from wmlce.channel import published
from wmlce.recipes.model import Recipe
from wmlce.recipes.recipe_set import RecipeSet, load_source_lock, load_variants
from wmlce.sources.model import read_lock
from wmlce.sources.store import SourceLock
from wmlce.util.errors import WmlceError
from wmlce.util.layout import Layout
from wmlce.util.progress import Progress
from wmlce.util.project_files import listed_files


@dataclass
class SiteRecipe(Recipe):
    """A recipe from outside the clone: the files beside it travel as text."""

    origin: Path = field(default_factory=Path)

    @property
    def where(self) -> str:
        return str(self.origin / "recipe.yaml")


@dataclass(frozen=True)
class SiteLayout(Layout):
    """The clone as it is for a site's recipes: they have a channel of their own."""

    site: Path

    @property
    def build(self) -> Path:
        return self.root / "build" / "site" / self.site.name

    @property
    def recipes(self) -> Path:
        return self.site


@dataclass(frozen=True)
class SiteUpdate:
    """results: of the site's recipes. channel: its folder. changed: was a new one published?"""

    results: Mapping[str, Built]
    channel: Path
    changed: bool


def _read(folder: Path, layout: Layout, recipes: RecipeSet) -> list[SiteRecipe]:
    variants = load_variants(recipes.variants_text)
    site_recipes = []
    for path in sorted(folder.glob("*/recipe.yaml")):
        name = path.parent.name
        files = {}
        for file in listed_files(path.parent, path.parent):
            if file == path:
                continue
            try:
                files[str(file.relative_to(path.parent))] = file.read_text()
            except UnicodeDecodeError as error:
                raise WmlceError(
                    f"{file} is not text",
                    remedy=f"name archives in {folder}/sources.lock.yaml (docs/cluster/site-recipes.md)",
                ) from error
        if any("/" in file for file in files):
            raise WmlceError(
                f"{path.parent} has folders in it", remedy="put the files beside recipe.yaml, without folders"
            )
        site_recipes.append(
            SiteRecipe(
                name, layout.recipes / name, path.read_text(), True, variants, files, origin=path.parent
            )
        )
    if not site_recipes:
        raise WmlceError(f"{folder} holds no NAME/recipe.yaml", remedy="name a folder of recipes")
    return site_recipes


def _together(folder: Path, layout: Layout) -> tuple[RecipeSet, list[str]]:
    """The channel's recipes with the site's, and the names of these."""
    recipes = RecipeSet(layout)
    site_recipes = _read(folder, layout, recipes)
    for recipe in site_recipes:
        taken = ({recipe.name} & recipes.by_name.keys()) | (recipe.output_names() & recipes.by_output.keys())
        if taken:
            raise WmlceError(
                f"{recipe.where} makes {', '.join(sorted(taken))}, which this channel has already",
                remedy="rename it: clients could not tell the two apart",
                recipe=recipe.name,
            )
    # by_output is kept once it was asked for: another set, to which the site's recipes belong
    whole = RecipeSet(layout)
    whole.by_name.update({recipe.name: recipe for recipe in site_recipes})
    return whole, [recipe.name for recipe in site_recipes]


def build(
    layout: Layout,
    folder: Path,
    progress: Progress,
    requested: Sequence[str],
    *,
    jobs: int,
    keep_going: bool = False,
    force: bool = False,
) -> SiteUpdate:
    """Build the recipes of `folder` with what they need, and publish build/site/NAME/channel of them."""
    folder = folder.resolve()
    if not folder.is_dir():
        raise WmlceError(f"{folder} is not a folder", remedy="name a folder of recipes: --recipes DIR")
    own_layout = SiteLayout(layout.root, layout.cache, folder)
    with published.building(layout, progress.say), published.building(own_layout, progress.say):
        recipes, names = _together(folder, layout)
        unknown = sorted(set(requested) - set(names))
        if unknown:
            raise WmlceError(
                f"{folder} has no recipe {', '.join(unknown)}", remedy=f"it has: {', '.join(names)}"
            )
        base = load_source_lock(layout)
        lock = SourceLock(layout, [*base.entries, *read_lock(folder / "sources.lock.yaml")])
        plan = Plan(layout, recipes, lock, names)
        plan.order  # noqa: B018 - a circle among the recipes is an error before anything is built
        requested_plan = Plan(layout, recipes, lock, requested) if requested else plan
        forced = requested_plan.requested if force else ()
        results = Builder(
            layout, requested_plan, progress, jobs=jobs, keep_going=keep_going, force=forced
        ).run()
        mine = {name: built for name, built in results.items() if name in names}
        packages = [package for built in mine.values() for package in built.packages]
        outputs = {output for name in names for output in recipes.by_name[name].output_names()}
        changed = published.publish(own_layout, packages, outputs, progress.say)
    return SiteUpdate(mine, own_layout.channel, changed)
