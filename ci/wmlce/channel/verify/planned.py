"""The channel as its recipes make it, without building or fetching anything: every package of the channel and
of each variant has to be solvable with the others.
"""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rattler import (
    BuildString,
    Channel,
    Gateway,
    GenericVirtualPackage,
    MatchSpec,
    PackageName,
    Version,
    solve,
)

from wmlce.channel.verify.check import Check, Say
from wmlce.recipes import name_map
from wmlce.recipes.model import Output, Recipe, for_build, package_name
from wmlce.recipes.recipe_set import RecipeSet
from wmlce.recipes.variant import read_all
from wmlce.util.errors import WmlceError
from wmlce.util.layout import Layout
from wmlce.util.limits import SOLVE_LIMIT
from wmlce.util.platform import NOARCH, Platform, of_this_machine

_CUDA = re.compile(r"__cuda >=([0-9.]+)")
_CONTENT = "0123456789"
"""Stands for the content hash in build strings: no recipe's files are read."""


@dataclass(frozen=True)
class Package:
    """An entry of an index."""

    subdir: str
    name: str
    version: str
    build: str
    depends: tuple[str, ...] = ()
    constrains: tuple[str, ...] = ()
    features: str = ""
    license_family: str | None = None

    @property
    def file(self) -> str:
        return f"{self.name}-{self.version}-{self.build}.conda"

    def entry(self) -> dict[str, Any]:
        number = re.search(r"(?:^|_)(\d+)(?:_|$)", self.build[::-1])
        return {
            "build": self.build,
            "build_number": int(number[1][::-1]) if number else 0,
            "constrains": list(self.constrains),
            "depends": list(self.depends),
            "name": self.name,
            "noarch": "generic" if self.subdir == NOARCH else None,
            "size": 1,
            "license_family": self.license_family,
            "subdir": self.subdir,
            "version": self.version,
            **({"track_features": self.features} if self.features else {}),
        }


def own_channel(
    layout: Layout, variant: str | None = None, platform: Platform | None = None
) -> list[Package]:
    """The packages that the recipes make, as rattler-build would write them into the index: run requirements,
    and what the host and build requirements export. With a variant, those of it beside the others.
    platform: this machine's, unless it is named
    """
    recipes = RecipeSet(layout, platform)
    outputs = {
        (recipe.variant_name, output.name): (recipe, output)
        for recipe in recipes.by_name.values()
        if recipe.variant_name in (None, variant)
        for output in recipe.outputs
    }
    packages = []
    for recipe, output in outputs.values():
        build = _build(recipe, output)
        preferred = (build.get("variant") or {}).get("down_prioritize_variant", 0)
        packages.append(
            Package(
                NOARCH if output.noarch else recipes.target.subdir,
                output.name,
                output.version,
                str(build["string"]),
                tuple(_depends(recipe, output, outputs)),
                tuple(_specs(_requirements(output).get("run_constraints"), recipe, outputs)),
                " ".join(f"{output.name}-p-{number}" for number in range(preferred)),
                (output.rendered.get("about") or {}).get("license_family"),
            )
        )
    return packages


_Outputs = Mapping[tuple[str | None, str], tuple[Recipe, Output]]


def _requirements(output: Output) -> Mapping[str, Any]:
    return output.rendered.get("requirements") or {}


def _build(recipe: Recipe, output: Output) -> Mapping[str, Any]:
    """The build string as the tool sets it: a string that the recipe gives stays as its end."""
    variables = {**recipe.names, "target_platform": (recipe.platform or of_this_machine()).subdir}
    document = name_map.filled(yaml.safe_load(for_build(recipe, _CONTENT, output.number, 0)), variables)
    for item in document.get("outputs", [document]):
        if item["package"]["name"] == output.name:
            return dict(item["build"])
    raise WmlceError(f"{recipe.where} has no output {output.name}")


def _for(recipe: Recipe, name: str, outputs: _Outputs) -> tuple[Recipe, Output]:
    """The package of this name that a recipe is built with: first of its own variant."""
    return outputs.get((recipe.variant_name, name)) or outputs[None, name]


def _specs(items: Sequence[Any] | None, recipe: Recipe, outputs: _Outputs) -> list[str]:
    specs = []
    for item in items or ():
        if isinstance(item, str):
            specs.append(item)
            continue
        name = item["pin_subpackage"]["name"]
        if not item["pin_subpackage"].get("exact"):
            raise WmlceError(
                f"{recipe.where}: a pin of {name} that is not exact",
                remedy="write it as a match spec, or exact",
            )
        maker, output = _for(recipe, name, outputs)
        specs.append(f"{name} =={output.version} {_build(maker, output)['string']}")
    return specs


def _depends(recipe: Recipe, output: Output, outputs: _Outputs) -> list[str]:
    requirements = _requirements(output)
    depends = _specs(requirements.get("run"), recipe, outputs)
    for section in ("build", "host"):
        for spec in requirements.get(section) or ():
            name = package_name(spec) if isinstance(spec, str) else spec["pin_subpackage"]["name"]
            maker, other = _for(recipe, name, outputs)
            exports = _requirements(other).get("run_exports") or {}
            kinds = ("strong", "weak")[: 2 if section == "host" else 1]
            if output.noarch:  # of these a package without a language has none
                kinds = ("noarch",) if output.noarch == "python" else ()
            for kind in kinds:
                depends += _specs(exports.get(kind), maker, outputs)
    return list(dict.fromkeys(depends))


def write_channel(folder: Path, packages: Iterable[Package]) -> Path:
    """An index without packages, which is all that a solver reads."""
    packages = list(packages)
    for subdir in sorted({*of_this_machine().subdirs, *(package.subdir for package in packages)}):
        entries = {package.file: package.entry() for package in packages if package.subdir == subdir}
        document = {
            "info": {"subdir": subdir},
            "packages": {},
            "packages.conda": entries,
            "repodata_version": 1,
        }
        (folder / subdir).mkdir(parents=True)
        (folder / subdir / "repodata.json").write_text(json.dumps(document))
    return folder


def closed(layout: Layout, say: Say) -> list[Check]:
    """For each variant of the clone: all packages of the channel and of it are solvable as one channel, on a
    host with a driver for its GPUs; what needs none also on a host without.
    """
    checks = []
    for name in sorted(read_all(layout)):
        say(f"every package solvable, as the recipes of the variant {name} make them")
        packages = own_channel(layout, name)
        with tempfile.TemporaryDirectory(prefix="wmlce-planned-") as scratch:
            folder = write_channel(Path(scratch) / "channel", packages)
            findings = asyncio.run(_unsolvable(folder, packages))
        checks.append(Check(f"closed as planned: {name}", f"{len(packages)} packages", findings))
    return checks


async def _unsolvable(
    folder: Path, packages: Sequence[Package], platform: Platform | None = None
) -> list[str]:
    channel, gateway = Channel(folder.as_uri()), Gateway()
    drivers = {match[1] for package in packages for spec in package.depends if (match := _CUDA.search(spec))}
    newest = max(drivers, key=Version, default=None)
    needing = [candidate for candidate in packages if any(_CUDA.search(spec) for spec in candidate.depends)]
    findings = []
    for package in packages:
        spec = f"{package.name} =={package.version} {package.build}"
        for cuda in [None, newest] if newest and package not in needing else [newest]:
            system = [("__unix", "0"), ("__linux", "6.1"), ("__glibc", "2.28")]
            system += [("__cuda", cuda)] if cuda else []
            try:
                await solve(
                    sources=[channel],
                    specs=[MatchSpec(spec)],
                    gateway=gateway,
                    platforms=list((platform or of_this_machine()).subdirs),
                    virtual_packages=[
                        GenericVirtualPackage(PackageName(name), Version(version), BuildString("0"))
                        for name, version in system
                    ],
                    timeout=SOLVE_LIMIT,
                )
            except Exception as error:  # rattler's errors have no common type
                host = f"with a driver for CUDA {cuda}" if cuda else "without a GPU"
                findings.append(f"{spec}, on a host {host}: {' '.join(str(error).split())[:400]}")
    return findings
