"""No file belongs to two packages that can be installed together: the later one would win."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from rattler import Channel, Gateway

from wmlce.channel.verify.check import Check
from wmlce.channel.verify.contents import Package
from wmlce.channel.verify.solvable import try_solve

_SHOWN = 3


def one_owner(folder: Path, packages: Sequence[Package]) -> Check:
    """Whether two packages can be installed together is asked of the solver, not read off their names."""
    owners: dict[str, list[Package]] = {}
    for package in packages:
        for path in package.contents.paths:
            owners.setdefault(path, []).append(package)
    shared: dict[tuple[str, str], list[str]] = {}
    by_key = {package.key: package for package in packages}
    for path, claimants in owners.items():
        for number, package in enumerate(claimants):
            for other in claimants[number + 1 :]:
                if package.name != other.name:
                    shared.setdefault((package.key, other.key), []).append(path)
    check = Check("no file in two packages", f"{len(owners)} files of {len(packages)} packages")

    async def run() -> None:
        gateway = Gateway()
        source = Channel(folder.resolve().as_uri())
        for (first, second), paths in sorted(shared.items()):
            specs = [by_key[first].exactly, by_key[second].exactly]
            if isinstance(await try_solve(source, gateway, specs), str):
                continue  # they exclude each other
            more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
            check.findings.append(
                f"{first} and {second} both install {', '.join(sorted(paths)[:_SHOWN])}{more}"
            )

    if shared:
        asyncio.run(run())
    return check
