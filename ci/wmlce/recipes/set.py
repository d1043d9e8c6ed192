"""All recipes of a clone, and all that they may be made of."""

from __future__ import annotations

import difflib
from functools import cached_property
from pathlib import Path

from rattler_build import VariantConfig

from wmlce.recipes.generate import wheel_recipes
from wmlce.recipes.model import Recipe
from wmlce.recipes.wheel_lock import wheel_sources
from wmlce.sources import moved
from wmlce.sources.model import read_source_locks
from wmlce.sources.store import SourceLock
from wmlce.util.errors import WmlceError
from wmlce.util.layout import Layout
from wmlce.util.project_files import listed_files


def load_source_lock(layout: Layout) -> SourceLock:
    """Every locked file: those of sources.lock.yaml and of the build root, and the wheels."""
    return SourceLock(layout, [*read_source_locks(layout), *wheel_sources(layout)])


def read_variants(layout: Layout) -> str | None:
    """The text of recipes/variants.yaml; None where there is none."""
    path = layout.recipes / "variants.yaml"
    return path.read_text() if path.is_file() else None


def load_variants(text: str | None) -> VariantConfig:
    """recipes/variants.yaml; without that file no variant has a value."""
    if text is None:
        return VariantConfig()
    try:
        return VariantConfig.from_yaml(text)
    except Exception as error:
        raise WmlceError(
            "recipes/variants.yaml cannot be read",
            detail=str(error).splitlines()[:10],
            remedy="correct it; it is a list of values for each variant key",
        ) from error


class RecipeSet:
    """All recipes of a clone, by recipe name and by the package names that they make."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        # read once: what is built later is what was planned, whatever is edited meanwhile
        self.variants_text = read_variants(layout)
        variants = load_variants(self.variants_text)
        self.by_name: dict[str, Recipe] = {}
        stand_ins = moved.in_use(layout)
        for folder in sorted(layout.recipes.iterdir()):
            path = folder / "recipe.yaml"
            if path.is_file():
                text = moved.recipe_text(path.read_text(), folder.name, stand_ins)
                self.by_name[folder.name] = Recipe(folder.name, folder, text, False, variants)
        for recipe in wheel_recipes(layout, variants):
            # a hand-written recipe replaces the generated one of the same name
            self.by_name.setdefault(recipe.name, recipe)

    @cached_property
    def by_output(self) -> dict[str, Recipe]:
        """Package name -> the recipe that makes it."""
        made: dict[str, Recipe] = {}
        for recipe in self.by_name.values():
            for name in recipe.output_names():
                other = made.setdefault(name, recipe)
                if other is not recipe:
                    raise WmlceError(
                        f"package '{name}' is made by two recipes: {other.where} and {recipe.where}",
                        remedy="rename or remove one of them",
                        recipe=recipe.name,
                    )
        return made

    def find(self, name: str) -> Recipe:
        """A recipe by its own name or by the name of a package that it makes."""
        recipe = self.by_name.get(name) or self.by_output.get(name)
        if recipe is None:
            known = sorted({*self.by_name, *self.by_output})
            close = difflib.get_close_matches(name, known, 3)
            hint = f"did you mean {', '.join(close)}?" if close else f"known: {', '.join(known)}"
            raise WmlceError(f"there is no recipe '{name}'", remedy=hint)
        return recipe

    def recipe_files(self, recipe: Recipe) -> dict[str, Path]:
        """Files beside a recipe (scripts, patches), by path relative to its folder, without recipe.yaml."""
        if recipe.generated:
            return {}
        listed = listed_files(self.layout.root, recipe.folder)
        return {
            str(path.relative_to(recipe.folder)): path
            for path in listed
            if path != recipe.folder / "recipe.yaml"
        }
