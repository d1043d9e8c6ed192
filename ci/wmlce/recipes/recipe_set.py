"""All recipes of a clone, and all that they may be made of."""

from __future__ import annotations

import difflib
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import yaml
from rattler_build import VariantConfig

from wmlce.recipes import name_map, pytorch_build
from wmlce.recipes.generate import wheel_recipes
from wmlce.recipes.model import Recipe
from wmlce.recipes.variant import Variant, merged_values, read_all
from wmlce.recipes.wheel_lock import wheel_sources
from wmlce.sources import drift
from wmlce.sources.model import read_source_locks
from wmlce.sources.store import SourceLock
from wmlce.util.errors import WmlceError
from wmlce.util.layout import Layout
from wmlce.util.platform import Platform, of_this_machine
from wmlce.util.project_files import listed_files


def load_source_lock(layout: Layout) -> SourceLock:
    """Every locked file: those of sources.lock.yaml and of the build root, and the wheels, those of variants
    too.
    """
    wheels = [
        source for variant in (None, *read_all(layout).values()) for source in wheel_sources(layout, variant)
    ]
    return SourceLock(layout, [*read_source_locks(layout), *wheels])


def read_variants(layout: Layout, platform: Platform | None = None) -> str:
    """The values of recipes/variants.yaml, and of the names that recipes do not write, as YAML."""
    path = layout.recipes / "variants.yaml"
    added = {key: [value] for key, value in name_map.values(layout, platform).items()}
    try:
        written = yaml.safe_load(path.read_text()) if path.is_file() else None
        return yaml.safe_dump({**added, **(written or {})}, sort_keys=True)
    except (yaml.YAMLError, TypeError) as error:
        raise _unreadable(error) from error


def load_variants(text: str) -> VariantConfig:
    """What `read_variants` gives, as the recipes' library wants it."""
    try:
        return VariantConfig.from_yaml(text)
    except Exception as error:
        raise _unreadable(error) from error


def _unreadable(error: Exception) -> WmlceError:
    return WmlceError(
        "recipes/variants.yaml cannot be read",
        detail=str(error).splitlines()[:10],
        remedy="correct it; it is a list of values for each variant key",
    )


class RecipeSet:
    """All recipes of a clone, those of its variants too, by recipe name and by the package names that they
    make. platform: what they are evaluated for; this machine's, unless it is named
    """

    def __init__(self, layout: Layout, platform: Platform | None = None) -> None:
        self.layout = layout
        self.platform = platform
        self.target = platform or of_this_machine()
        self.names = name_map.values(layout, platform)
        # read once: what is built later is what was planned, whatever is edited meanwhile
        self.variants_text = read_variants(layout, platform)
        variants = load_variants(self.variants_text)
        self.by_name: dict[str, Recipe] = {}
        self._stand_ins = drift.in_use(layout)
        for recipe in self._written(layout.recipes, variants):
            self.by_name[recipe.name] = recipe
        for recipe in wheel_recipes(layout, variants):
            # a hand-written recipe replaces the generated one of the same name
            self.by_name.setdefault(recipe.name, recipe)
        for recipe in self.by_name.values():
            recipe.platform, recipe.names = platform, self.names
        self.variants = read_all(layout)
        chosen = pytorch_build.chosen(layout)
        for variant in self.variants.values():
            if not variant.instead or variant.name == chosen:
                self._add(variant)

    def _written(self, folder: Path, variants: VariantConfig) -> list[Recipe]:
        return [
            Recipe(
                path.parent.name,
                path.parent,
                drift.recipe_text(path.read_text(), path.parent.name, self._stand_ins),
                False,
                variants,
            )
            for path in sorted(folder.glob("*/recipe.yaml"))
        ]

    def _add(self, variant: Variant) -> None:
        """The recipes of a variant: its wheels, its own, and those of the channel that it builds again."""
        text = merged_values(self.variants_text, variant)
        values = load_variants(text)
        copies = {
            recipe.name: recipe
            for recipe in (
                *wheel_recipes(self.layout, values, variant),
                *self._written(variant.folder(self.layout), values),
            )
        }
        for name in variant.again:
            base = self.by_name.get(name)
            if base is None:
                raise WmlceError(
                    f"the variant {variant.name} builds '{name}' again, of which there is no recipe",
                    remedy=f"correct `again` in recipes/{variant.name}/variant.yaml",
                )
            copies.setdefault(name, replace(base, variants=values))
        for name, recipe in copies.items():
            if variant.instead:
                self.by_name.pop(name, None)
            variant_recipe = replace(
                recipe,
                name=variant.recipe_name(name),
                variant=variant,
                variants_text=text,
                platform=self.platform,
                names=self.names,
            )
            if variant_recipe.name in self.by_name:
                raise WmlceError(
                    f"the recipe name {variant_recipe.name} is also that of '{name}' in the "
                    f"variant {variant.name}",
                    remedy="rename the recipe",
                )
            self.by_name[variant_recipe.name] = variant_recipe

    def of(self, variant: str | None) -> list[str]:
        """Names of the recipes of a variant; None: of those that are of no variant."""
        return [name for name, recipe in self.by_name.items() if recipe.variant_name == variant]

    @cached_property
    def _makers(self) -> dict[tuple[str | None, str], Recipe]:
        """Variant and package name -> the recipe that makes it."""
        makers: dict[tuple[str | None, str], Recipe] = {}
        for recipe in self.by_name.values():
            for name in recipe.output_names():
                other = makers.setdefault((recipe.variant_name, name), recipe)
                if other is not recipe:
                    raise WmlceError(
                        f"package '{name}' is made by two recipes: {other.where} and {recipe.where}",
                        remedy="rename or remove one of them",
                        recipe=recipe.name,
                    )
        return makers

    @cached_property
    def by_output(self) -> dict[str, Recipe]:
        """Package name -> a recipe that makes it, the channel's own where variants have it too."""
        makers: dict[str, Recipe] = {}
        for (variant, name), recipe in self._makers.items():
            if variant is None or (None, name) not in self._makers:
                makers[name] = recipe
        return makers

    def maker(self, package: str, variant: str | None) -> Recipe | None:
        """The recipe that makes a package for users of a variant."""
        return self._makers.get((variant, package)) or self._makers.get((None, package))

    def find(self, name: str, variant: str | None = None) -> Recipe:
        """A recipe by its own name or by the name of a package that it makes; first among those of a
        variant.
        """
        names = [self.variants[variant].recipe_name(name), name] if variant else [name]
        for candidate in names:
            if candidate in self.by_name:
                return self.by_name[candidate]
        recipe = self.maker(name, variant)
        if recipe is None:
            raise self._unknown(name)
        return recipe

    def _unknown(self, name: str) -> WmlceError:
        for variant in self.variants.values():
            if self.maker(name, variant.name) is not None:
                return WmlceError(
                    f"'{name}' is a package of the variant {variant.name}",
                    remedy=f"add --variant {variant.name}",
                )
        known_names = sorted({*self.by_name, *self.by_output})
        close = difflib.get_close_matches(name, known_names, 3)
        hint = f"did you mean {', '.join(close)}?" if close else f"known: {', '.join(known_names)}"
        return WmlceError(f"there is no recipe '{name}'", remedy=hint)

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
