"""Closedness: each package can be installed from this channel and nothing else."""

from __future__ import annotations

import asyncio
from pathlib import Path

from rattler import Channel, Gateway, MatchSpec, VirtualPackage, VirtualPackageOverrides, solve

from wmlce.channel import published
from wmlce.channel.verify import Check
from wmlce.envs.environments import SOLVE_LIMIT


def closed(folder: Path) -> Check:
    """Solve for every package at its very build; a failure is a dependency that the channel does not hold."""
    specs = sorted(
        f"{entry['name']} =={entry['version']} {entry['build']}"
        for entries in published.repodata(folder).values()
        for entry in entries.values()
    )
    check = Check("closed: every package solvable", f"{len(specs)} packages")

    async def run() -> None:
        gateway = Gateway()
        source = Channel(folder.resolve().as_uri())
        virtual = VirtualPackage.detect(VirtualPackageOverrides.from_env())
        for spec in specs:
            try:
                await solve(
                    sources=[source],
                    specs=[MatchSpec(spec)],
                    gateway=gateway,
                    platforms=["linux-64", "noarch"],
                    virtual_packages=virtual,
                    timeout=SOLVE_LIMIT,
                )
            except Exception as error:  # rattler's errors have no common type
                reason = " ".join(str(error).split())
                check.findings.append(f"{spec}: {reason[:400]}")

    asyncio.run(run())
    return check
