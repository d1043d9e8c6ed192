"""Two channels to solve with: conda-forge's index as ci/tests/conda_forge describes it, and this project's
own as its recipes make it, without building anything.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from rattler import (
    BuildString,
    Channel,
    ChannelPriority,
    GenericVirtualPackage,
    MatchSpec,
    PackageName,
    RepoDataRecord,
    Version,
    solve,
)
from rattler.exceptions import SolverError
from tree import ROOT
from wmlce.recipes.model import Output, Recipe, for_build, package_name
from wmlce.recipes.set import RecipeSet
from wmlce.util.layout import Layout

DATA = ROOT / "ci" / "tests" / "conda_forge"
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
            "noarch": "generic" if self.subdir == "noarch" else None,
            "size": 1,
            "license_family": self.license_family,
            "subdir": self.subdir,
            "version": self.version,
            **({"track_features": self.features} if self.features else {}),
        }


def conda_forge(others: Iterable[str]) -> list[Package]:
    """Everything in ci/tests/conda_forge. A dependency on what is not there is left out; it must not be one
    of `others`, this channel's names.
    """
    packages = []
    for file in sorted(DATA.glob("*.yaml")):
        for subdir, entries in yaml.safe_load(file.read_text()).items():
            for key, value in entries.items():
                name, version, build = key.rsplit("-", 2)
                value = value or {}
                depends, constrains = value.get("depends", ()), value.get("constrains", ())
                packages.append(Package(subdir, name, version, build, tuple(depends), tuple(constrains)))
    known = {package.name for package in packages}
    elsewhere = {
        package_name(spec) for package in packages for spec in package.depends if not spec.startswith("__")
    } - known
    assert not elsewhere & set(others), f"missing in {DATA}: {sorted(elsewhere & set(others))}"
    return [
        replace(package, depends=tuple(s for s in package.depends if package_name(s) not in elsewhere))
        for package in packages
    ]


def own_channel(layout: Layout, variant: str | None = None) -> list[Package]:
    """The packages that the recipes make, as rattler-build would write them into the index: run requirements,
    and what the host and build requirements export. With a variant, those of it beside the others.
    """
    recipes = RecipeSet(layout)
    outputs = {
        (recipe.variant_name, output.name): (recipe, output)
        for recipe in recipes.by_name.values()
        if recipe.variant_name in (None, variant)
        for output in recipe.outputs
    }
    found = []
    for recipe, output in outputs.values():
        build = _build(recipe, output)
        preferred = (build.get("variant") or {}).get("down_prioritize_variant", 0)
        found.append(
            Package(
                "noarch" if output.noarch else "linux-64",
                output.name,
                output.version,
                str(build["string"]),
                tuple(_depends(recipe, output, outputs)),
                tuple(_specs(_requirements(output).get("run_constraints"), recipe, outputs)),
                " ".join(f"{output.name}-p-{number}" for number in range(preferred)),
                (output.rendered.get("about") or {}).get("license_family"),
            )
        )
    return found


def published(folder: Path) -> list[Package]:
    """The packages of a channel that was built."""
    return [
        Package(
            subdir,
            entry["name"],
            entry["version"],
            entry["build"],
            tuple(entry.get("depends", ())),
            tuple(entry.get("constrains", ())),
        )
        for subdir in ("linux-64", "noarch")
        for entry in json.loads((folder / subdir / "repodata.json").read_text())["packages.conda"].values()
    ]


_Outputs = Mapping[tuple[str | None, str], tuple[Recipe, Output]]


def _requirements(output: Output) -> Mapping[str, Any]:
    return output.rendered.get("requirements") or {}


def _build(recipe: Recipe, output: Output) -> Mapping[str, Any]:
    """As the tool sets it: a string that the recipe gives stays as its end."""
    document = yaml.safe_load(for_build(recipe, _CONTENT, output.number, 0))
    for item in document.get("outputs", [document]):
        if item["package"]["name"] == output.name:
            return dict(item["build"])
    raise AssertionError(f"{recipe.where} has no output {output.name}")


def _for(recipe: Recipe, name: str, outputs: _Outputs) -> tuple[Recipe, Output]:
    """The package of this name that a recipe is built with: first of its own variant."""
    return outputs.get((recipe.variant_name, name)) or outputs[None, name]


def _specs(items: Sequence[Any] | None, recipe: Recipe, outputs: _Outputs) -> list[str]:
    found = []
    for item in items or ():
        if isinstance(item, str):
            found.append(item)
            continue
        name = item["pin_subpackage"]["name"]
        assert item["pin_subpackage"].get("exact"), f"only exact pins are understood here: {item}"
        maker, output = _for(recipe, name, outputs)
        found.append(f"{name} =={output.version} {_build(maker, output)['string']}")
    return found


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
    for subdir in ("linux-64", "noarch"):
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


@dataclass(frozen=True)
class Solution:
    """name -> record; `where` says which channel a package comes from."""

    records: Mapping[str, RepoDataRecord] = field(repr=False)

    def where(self, name: str) -> str:
        """The name of the channel's folder."""
        return str(self.records[name].url).rsplit("/", 3)[1]

    def version(self, name: str) -> str:
        return str(self.records[name].version)


def solved(
    channels: Sequence[Path],
    priority: ChannelPriority,
    *specs: str,
    installed: Solution | None = None,
    cuda: str | None = None,
) -> Solution | str:
    """The environment that a client would install on a system of today, or the solver's reason.

    cuda: what its driver is for
    """
    system = [("__unix", "0", "0"), ("__linux", "6.1", "0"), ("__glibc", "2.36", "0")]
    system += [("__cuda", cuda, "0")] if cuda else []
    virtual = [
        GenericVirtualPackage(PackageName(name), Version(v), BuildString(build)) for name, v, build in system
    ]

    async def run() -> list[RepoDataRecord]:
        return await solve(
            sources=[Channel(channel.as_uri()) for channel in channels],
            specs=[MatchSpec(spec) for spec in specs],
            platforms=["linux-64", "noarch"],
            virtual_packages=virtual,
            channel_priority=priority,
            locked_packages=list(installed.records.values()) if installed else None,
        )

    try:
        return Solution({record.name.normalized: record for record in asyncio.run(run())})
    except SolverError as error:
        return str(error)
