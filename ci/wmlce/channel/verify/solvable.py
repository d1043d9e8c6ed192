"""Closedness: each package can be installed from this channel and nothing else."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

from rattler import (
    BuildString,
    Channel,
    Gateway,
    GenericVirtualPackage,
    MatchSpec,
    PackageName,
    RepoDataRecord,
    Version,
    VirtualPackage,
    VirtualPackageOverrides,
    solve,
)

from wmlce.channel import published
from wmlce.channel.verify.check import Check
from wmlce.util import platform
from wmlce.util.limits import SOLVE_LIMIT

_CUDA = re.compile(r"__cuda >=([0-9.]+)")


def closed(folder: Path) -> Check:
    """Solve for every package at its very build; a failure is a dependency that the channel does not hold.
    And for every name alone: an earlier build is not to be chosen before the current one. What is for hosts
    with a GPU is solved for one.
    """
    earlier = published.read(folder).earlier
    entries = published.entries(folder)
    for_gpus = {
        f"{entry['name']} =={entry['version']} {entry['build']}": Version(match[1])
        for entry in entries.values()
        if (match := _CUDA.search(" ".join(entry.get("depends", []))))
    }
    current = {
        f"{entry['name']} =={entry['version']} {entry['build']}": (str(entry["name"]), key.split("/")[1])
        for key, entry in entries.items()
        if key not in earlier
    }
    names = {
        name: {file for other, file in current.values() if other == name} for name, _ in current.values()
    }
    check = Check("closed: every package solvable", f"{len(current)} packages")

    async def run() -> None:
        gateway = Gateway()
        source = Channel(folder.resolve().as_uri())
        for spec in sorted({*current, *names}) if earlier else sorted(current):
            answer = await try_solve(source, gateway, [spec], cuda=for_gpus.get(spec))
            if isinstance(answer, str):
                check.findings.append(f"{spec}: {answer}")
                continue
            chosen = {record.file_name for record in answer}
            if spec in names and not chosen & names[spec]:
                check.findings.append(f"{spec}: an earlier build is chosen, not {', '.join(names[spec])}")

    asyncio.run(run())
    return check


async def try_solve(
    source: Channel, gateway: Gateway, specs: Sequence[str], *, cuda: Version | None = None
) -> list[RepoDataRecord] | str:
    """What would be installed, or in words why nothing can be. cuda: the driver's, if this host has none."""
    virtual = [
        package.into_generic() for package in VirtualPackage.detect(VirtualPackageOverrides.from_env())
    ]
    if cuda is not None and not any(package.name.normalized == "__cuda" for package in virtual):
        virtual.append(GenericVirtualPackage(PackageName("__cuda"), cuda, BuildString("0")))
    try:
        return await solve(
            sources=[source],
            specs=[MatchSpec(spec) for spec in specs],
            gateway=gateway,
            platforms=list(platform.of_this_machine().subdirs),
            virtual_packages=virtual,
            timeout=SOLVE_LIMIT,
        )
    except Exception as error:  # rattler's errors have no common type
        return " ".join(str(error).split())[:400]
