"""Closedness: each package can be installed from this channel and nothing else."""

from __future__ import annotations

import asyncio
from pathlib import Path

from rattler import Channel, Gateway, MatchSpec, VirtualPackage, VirtualPackageOverrides, solve

from wmlce.channel import published
from wmlce.channel.verify import Check
from wmlce.envs.environments import SOLVE_LIMIT


def closed(folder: Path) -> Check:
    """Solve for every package at its very build; a failure is a dependency that the channel does not hold.
    And for every name alone: an earlier build is not to be chosen before the current one.
    """
    earlier = published.read(folder).earlier
    current = {
        f"{entry['name']} =={entry['version']} {entry['build']}": (str(entry["name"]), file)
        for subdir, entries in published.repodata(folder).items()
        for file, entry in entries.items()
        if f"{subdir}/{file}" not in earlier
    }
    names = {
        name: {file for other, file in current.values() if other == name} for name, _ in current.values()
    }
    check = Check("closed: every package solvable", f"{len(current)} packages")

    async def run() -> None:
        gateway = Gateway()
        source = Channel(folder.resolve().as_uri())
        virtual = VirtualPackage.detect(VirtualPackageOverrides.from_env())
        for spec in sorted({*current, *names}) if earlier else sorted(current):
            try:
                answer = await solve(
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
                continue
            chosen = {record.file_name for record in answer}
            if spec in names and not chosen & names[spec]:
                check.findings.append(f"{spec}: an earlier build is chosen, not {', '.join(names[spec])}")

    asyncio.run(run())
    return check
