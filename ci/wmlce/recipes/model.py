"""Recipes as the tool sees them: v1 recipe folders and recipes generated from locked wheels, evaluated.

Rendering (Jinja, selectors, variants) is py-rattler-build's own, so a recipe means here what it means to
rattler-build and conda-build.
"""

from __future__ import annotations

import io
import json
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from rattler_build import PlatformConfig, RenderConfig, Stage0Recipe, VariantConfig
from ruamel.yaml import YAML

from wmlce.recipes.variant import Variant
from wmlce.util.errors import WmlceError
from wmlce.util.platform import Platform, of_this_machine

_HASH = re.compile(r"\$\{\{ *hash *\}\}")
_NAME = re.compile(r"^(?:[^\s]*::)?\s*([A-Za-z0-9_.\-]+)")


def package_name(spec: str) -> str:
    """The package that a match spec asks for: "zlib >=1.2" -> "zlib"."""
    match = _NAME.match(spec)
    if match is None:
        raise WmlceError(f"cannot read the dependency {spec!r}")
    return match.group(1).lower()


def _spec_names(specs: Iterable[Any]) -> Iterator[str]:
    for spec in specs:
        if isinstance(spec, str):
            yield package_name(spec)
        elif isinstance(spec, Mapping):
            for pin in ("pin_subpackage", "pin_compatible"):
                if pin in spec:
                    yield str(spec[pin]["name"]).lower()


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


@dataclass(frozen=True)
class Output:
    """One package that a recipe makes, after evaluation.

    rendered: the evaluated recipe (requirements, sources, tests) as a dictionary
    variant:  the variant values that were used
    """

    name: str
    version: str
    number: int
    noarch: str | None
    variant_prefix: str
    rendered: Mapping[str, Any]
    variant: Mapping[str, str]

    def build_dependencies(self) -> set[str]:
        """The packages that its build asks for; like those below, without virtual ones (`__glibc`)."""
        return self._required("build", "host")

    def run_dependencies(self) -> set[str]:
        """The packages that are installed with it, as far as its recipe names them."""
        return self._required("run")

    def _required(self, *sections: str) -> set[str]:
        requirements = self.rendered.get("requirements") or {}
        names = {name for section in sections for name in _spec_names(_as_list(requirements.get(section)))}
        return {name for name in names if not name.startswith("__")}

    def test_dependencies(self) -> set[str]:
        """The packages that its tests ask for beside it."""
        names: set[str] = set()
        for test in _as_list(self.rendered.get("tests")):
            extra = test.get("requirements") or {}
            for section in ("build", "run"):
                names.update(_spec_names(_as_list(extra.get(section))))
            python = test.get("python")
            if python is not None:
                names.add("python")
                if python.get("pip_check", True):
                    names.add("pip")
        return {name for name in names if not name.startswith("__")}


@dataclass
class Recipe:
    """A recipe before building.

    folder: its place in the tree; a generated recipe has one only in scratch trees
    text:   the YAML (generated recipes: JSON, which is YAML)
    variant: the variant of the channel that it belongs to
    variants_text: the values of a variant's recipes, as YAML
    platform: what it is evaluated for; this machine's, unless it is named
    names:    what it may say in place of names of platform and Python (name_map.py), with their values
    """

    name: str
    folder: Path
    text: str
    generated: bool
    variants: VariantConfig = field(repr=False)
    extra_files: Mapping[str, str] = field(default_factory=dict)
    variant: Variant | None = None
    variants_text: str | None = None
    platform: Platform | None = None
    names: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def variant_name(self) -> str | None:
        """Name of the variant that it belongs to, beside the channel's own packages."""
        return self.variant.name if self.variant and not self.variant.instead else None

    @property
    def where(self) -> str:
        folder = "recipes"
        if self.variant is not None and (self.generated or self.folder.parent.name == self.variant.name):
            folder += f"/{self.variant.name}"
        return f"{folder}/wheels.lock.yaml" if self.generated else f"{folder}/{self.folder.name}/recipe.yaml"

    @cached_property
    def outputs(self) -> list[Output]:
        """Evaluated outputs, in the order in which they are built."""
        return render(self)

    def output_names(self) -> set[str]:
        return {output.name for output in self.outputs}

    def source_entries(self) -> list[Mapping[str, Any]]:
        """All distinct `source` entries of all outputs."""
        seen: dict[str, Mapping[str, Any]] = {}
        for output in self.outputs:
            entries = _as_list(output.rendered.get("source"))
            for cache in _as_list(output.rendered.get("staging_caches")):
                entries += _as_list(cache.get("source"))
            for entry in entries:
                seen.setdefault(json.dumps(entry, sort_keys=True, default=str), entry)
        return list(seen.values())


def render(recipe: Recipe) -> list[Output]:
    """Evaluate a recipe; an error of the recipe names its file."""
    platform = PlatformConfig(target_platform=(recipe.platform or of_this_machine()).subdir)
    config = RenderConfig(platform=platform)
    try:
        # of the text, which has a moved source's version; not in the recipe's folder, where from_yaml would
        # write the file again, which another process may be reading
        with tempfile.TemporaryDirectory(prefix="wmlce-render-") as scratch:
            variants = Stage0Recipe.from_yaml(recipe.text, recipe_dir=scratch).render(recipe.variants, config)
        outputs = []
        for variant in variants:
            rendered = variant.recipe.to_dict()
            noarch = rendered.get("build", {}).get("noarch")
            info = variant.hash_info
            outputs.append(
                Output(
                    name=variant.recipe.package.name,
                    version=variant.recipe.package.version,
                    number=variant.recipe.build.number or 0,
                    noarch=str(noarch) if noarch else None,
                    variant_prefix=info.prefix if info else "",
                    rendered=rendered,
                    variant={key: str(value) for key, value in variant.variant.items()},
                )
            )
    except WmlceError:
        raise
    except Exception as error:  # py-rattler-build raises a family of unrelated types
        raise WmlceError(
            f"recipe '{recipe.name}' cannot be read ({recipe.where})",
            detail=str(error).splitlines()[:20],
            remedy="correct the recipe; its format is the v1 recipe.yaml schema",
            recipe=recipe.name,
        ) from error
    if not outputs:
        raise WmlceError(
            f"recipe '{recipe.name}' is skipped on this platform and makes no package ({recipe.where})",
            recipe=recipe.name,
        )
    return outputs


def for_build(
    recipe: Recipe,
    content_hash: str,
    number: int,
    source_date: int,
    environment: Mapping[str, str] | None = None,
) -> str:
    """The recipe's text as it is built: with the content hash in every output's build string, and with the
    variables of a reproducible build in every script's environment.

    A string that the recipe gives (`0_cp311`, `*_cpython`) stays as the end of it, because other packages'
    match specs look at that end. One that names its own place for a hash (`cpu_py311h${{ hash }}_0`) has the
    content hash there, because match specs look at its beginning.

    Of a variant, every string begins with its name, and the channel's own builds of the same version and
    number are preferred to those, unless the recipe says otherwise (`build: variant:`).

    Scripts see the date of the sources in $SOURCE_DATE_EPOCH (rattler-build's own is the hour of the build),
    and Python's sets have the same order each time. They see `environment` in addition.
    """
    variables = {"SOURCE_DATE_EPOCH": str(source_date), "PYTHONHASHSEED": "0", **(environment or {})}
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 10_000
    document = yaml.load(recipe.text)

    def set_build(build: Any, string: Any) -> None:
        text = _build_string(recipe, string, content_hash, number)
        if recipe.variant is not None:
            mine = f"{recipe.variant.name}_"
            text = text if text.startswith(mine) else mine + text.removeprefix("cpu_")
            build.setdefault("variant", {"down_prioritize_variant": 1})
        build["string"] = text
        build["number"] = number

    def visit(items: list[Any], inherited: Any) -> None:
        for item in items:
            if "if" in item:
                for branch in ("then", "else"):
                    visit(_as_list(item.get(branch)), inherited)
            elif "package" in item:
                build = item.setdefault("build", {})
                set_build(build, build.get("string", inherited))
                _add_variables(build, variables)
            elif "staging" in item and item.get("build"):
                _add_variables(item["build"], variables)

    if "outputs" in document:
        visit(document["outputs"], (document.get("build") or {}).get("string"))
        if document.get("build"):
            document["build"].pop("string", None)
            _add_variables(document["build"], variables)
    else:
        if document.get("build") is None:
            document["build"] = {}
        set_build(document["build"], document["build"].get("string"))
        _add_variables(document["build"], variables)
    stream = io.StringIO()
    yaml.dump(document, stream)
    return stream.getvalue()


def _build_string(recipe: Recipe, string: Any, content_hash: str, number: int) -> str:
    """The build string with the content hash, for one that the recipe gives, or for none."""
    names = [output.name for output in recipe.outputs]
    several = len(names) > len(set(names))
    if string is not None:
        placed = _HASH.sub(f"{content_hash}v${{{{ hash }}}}" if several else content_hash, str(string))
        return placed if placed != str(string) else f"h{content_hash}_{string}"
    if several:  # one content hash for all variants: the variant's own hash keeps their names apart
        return f"h{content_hash}v${{{{ hash }}}}_{number}"
    prefixes = {"pyh" if o.noarch == "python" else f"{o.variant_prefix}h" for o in recipe.outputs}
    prefix = prefixes.pop() if len(prefixes) == 1 else "h"
    return f"{prefix}{content_hash}_{number}"


def _add_variables(build: Any, variables: Mapping[str, str]) -> None:
    """Put variables into the environment of a build's script, in whichever form that is given."""
    script = build.get("script")
    if not isinstance(script, Mapping):
        named = isinstance(script, str) and re.fullmatch(r"\S+\.(sh|py|bash)", script.strip())
        build["script"] = {} if script is None else {"file" if named else "content": script}
    build["script"]["env"] = {**variables, **(build["script"].get("env") or {})}
