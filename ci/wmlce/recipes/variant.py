"""Variants of the channel: builds of some packages beside the usual ones, made on request.

A variant is a folder recipes/NAME with a file variant.yaml. What lies in the folder replaces or adds to what
the channel has otherwise: `wheels.yaml` with `wheels.lock.yaml`, and folders of recipes. Packages of a
variant have its name at the beginning of their build strings. Everything else that they need is the channel's
own, so no package that is not of a variant is built again for one.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from wmlce.util.errors import WmlceError
from wmlce.util.layout import Layout

FILE = "variant.yaml"


class Variant(BaseModel):
    """variant.yaml.

    summary:  what the variant is for, in some words
    package:  what users install to get it
    values:   values of recipes/variants.yaml that are others here
    again:    recipes of the channel that are built once more, with these values and against these packages
    instead:  its packages take the place of the channel's own of the same names, where a clone has chosen it
    (pytorch_build.py); otherwise there are none of it
    system:   CONDA_OVERRIDE_… variables under which it is built and tested: what its users' hosts have
    headers:  distribution (PyPI name) -> patterns of files in its wheel, for those who compile against it
    without the wheel: `wmlce source headers`
    """

    model_config = ConfigDict(extra="forbid")
    name: str = Field(pattern=r"^[a-z][a-z0-9]*$")
    summary: str
    package: str
    values: dict[str, list[str]] = {}
    again: list[str] = []
    instead: bool = False
    system: dict[str, str] = {}
    headers: dict[str, list[str]] = {}

    def folder(self, layout: Layout) -> Path:
        return layout.recipes / self.name

    def recipe_name(self, package: str) -> str:
        """What a recipe of the variant is called among all recipes: the channel may have the same package."""
        return f"{package}-{self.name}"

    def owns_build(self, build: str) -> bool:
        """Is a package with this build string one of the variant?"""
        return build.startswith(f"{self.name}_")


def read_all(layout: Layout) -> dict[str, Variant]:
    """The variants of a clone, by name."""
    return {path.parent.name: _read(path) for path in sorted(layout.recipes.glob(f"*/{FILE}"))}


def find(layout: Layout, name: str) -> Variant:
    """The variant of this name, or an error that names those that there are."""
    variants = read_all(layout)
    if name in variants:
        return variants[name]
    close = difflib.get_close_matches(name, variants, 1)
    hint = f"did you mean {close[0]}?" if close else f"there are: {', '.join(variants) or 'none'}"
    raise WmlceError(f"there is no variant {name!r} of the channel", remedy=hint)


def specs_to_install(variant: Variant | None, specs: Sequence[str]) -> list[str]:
    """What to install where users name a variant or none: `specs`, or else the package of the whole.

    Until this process ends, the solver takes the hosts for those of the variant: what is installed on one
    without a GPU is for others. What the environment says of them already counts more.
    """
    for name, value in (variant.system if variant else {}).items():
        os.environ.setdefault(name, value)
    return sorted(set(specs)) or [variant.package if variant else "powerai"]


def merged_values(text: str | None, variant: Variant) -> str:
    """recipes/variants.yaml as it is for a variant."""
    values = yaml.safe_load(text or "") or {}
    return yaml.safe_dump({**values, **variant.values}, sort_keys=True)


def _read(path: Path) -> Variant:
    title = f"recipes/{path.parent.name}/{FILE}"
    try:
        document = yaml.safe_load(path.read_text())
        return Variant.model_validate({**(document or {}), "name": path.parent.name})
    except (yaml.YAMLError, ValidationError, TypeError) as error:
        raise WmlceError(
            f"{title} cannot be read",
            detail=_told(error),
            remedy="see the class Variant in ci/wmlce/recipes/variant.py",
        ) from error


def _told(error: Exception) -> Sequence[str]:
    if not isinstance(error, ValidationError):
        return str(error).splitlines()[:6]
    return [f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()[:6]]
