"""Two channels to solve with: conda-forge's index as ci/tests/conda_forge describes it, and this project's
own as its recipes make it, without building anything.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

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
from wmlce.channel.verify.planned import Package, own_channel, write_channel
from wmlce.recipes.model import package_name

__all__ = ["Package", "Solution", "conda_forge", "own_channel", "published", "solved", "write_channel"]

DATA = ROOT / "ci" / "tests" / "conda_forge"


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
