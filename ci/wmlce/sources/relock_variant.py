"""`wmlce lock wheels --variant NAME`: the wheels of a variant of the channel, without fetching them.

A variant's wheels.yaml names every distribution with its version, so nothing is left to a resolver: two
distributions may pin different versions of a library of which there shall be one. What is named is checked
against everything that the wheels and the channel require. Their metadata and the names of their files are
read out of the index; some of the wheels are the largest that there are.
"""

from __future__ import annotations

import fnmatch
import json
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from email.message import Message
from email.parser import Parser
from pathlib import Path, PurePosixPath

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from wmlce.recipes.variant import Variant
from wmlce.recipes.wheel_lock import (
    LockedWheel,
    WheelConfig,
    WheelLock,
    config_path,
    read_config,
    read_wheel_lock,
)
from wmlce.sources import headers
from wmlce.sources.pypi import Target, WantedFile, ask_indexes, pip_command, problem_lines
from wmlce.sources.relock_wheels import Resolved, described, require_clear, target_environment, write
from wmlce.util.clients import run_client
from wmlce.util.errors import WmlceError
from wmlce.util.layout import Layout

_LIBRARY = re.compile(r"lib[^/]*\.so(\.[0-9.]+)?")
Say = Callable[[str], None]


def lock(layout: Layout, variant: Variant, say: Say) -> WheelLock:
    """Find, look into, check and write; returns what was written."""
    config = read_config(layout, variant)
    title = str(config_path(layout, variant).relative_to(layout.root))
    if not config.roots:
        raise WmlceError(f"{title} names no roots", remedy="list them: `roots: [torch==2.10.0, …]`")
    target = Target()
    resolved = _find(config, title, say)
    say(f"looking into {len(resolved)} wheels")
    with tempfile.TemporaryDirectory(prefix="wmlce-") as scratch:
        requests = [WantedFile(item.name, item.file) for item in resolved]
        answer = ask_indexes(Path(scratch), say, inspect=requests).inspected
    environment = target_environment(layout, target)
    versions = {wheel.name: wheel.version for wheel in read_wheel_lock(layout).packages}
    versions |= {item.name: item.version for item in resolved}
    wheels: list[LockedWheel] = []
    unclear: list[str] = []
    unmet: list[str] = []
    for item in sorted(resolved, key=lambda item: item.name):
        seen = answer.get(item.file) or {"error": "the index did not answer"}
        if seen["error"]:
            raise WmlceError(
                f"{item.file} cannot be inspected",
                detail=str(seen["error"]).splitlines()[:4],
                remedy="check the network with `wmlce doctor`, then try again",
            )
        metadata = Parser().parsestr(seen["texts"]["METADATA"])
        needs = _needs(item.name, metadata, config, environment)
        unmet += [
            f"{item.name} {item.version} needs {requirement}, and there is {versions.get(name, 'none')}"
            for requirement in needs
            if not _met(requirement, name := canonicalize_name(requirement.name), item.name, versions, config)
        ]
        bare = LockedWheel(
            name=item.name, version=item.version, file=item.file, sha256=item.sha256, size=seen["size"]
        )
        scripts = seen["texts"].get("entry_points.txt", "")
        wheels.append(described(bare, seen["names"], metadata, scripts, needs, config, unclear))
    require_clear(unclear, title)
    if unmet:
        raise WmlceError(
            f"what {title} names does not fit together",
            detail=unmet,
            remedy="name other versions, or say under `packages: NAME: requires` which one works too",
        )
    if twice := _twice({item.name: answer[item.file]["names"] for item in resolved}, config):
        raise WmlceError(
            f"{len(twice)} files of what {title} names exist twice",
            detail=twice[:20],
            remedy="leave one of them out: packages: NAME: leave_out, or links_within",
        )
    result = WheelLock(python=str(target.python), roots=config.roots, packages=wheels)
    if variant.headers:
        headers.lock(layout, variant, result, say)
    write(layout, result, variant)
    return result


def _find(config: WheelConfig, title: str, say: Say) -> list[Resolved]:
    """The files of the named versions that fit the channel's CPython."""
    inexact = [root for root in config.roots if not str(Requirement(root).specifier).startswith("==")]
    if inexact:
        raise WmlceError(f"{title}: {inexact[0]} has no exact version", remedy="write NAME==VERSION")
    with tempfile.TemporaryDirectory(prefix="wmlce-resolve-") as scratch:
        report = Path(scratch) / "report.json"
        command = pip_command("install", "--dry-run", "--ignore-installed", "--no-deps", "--quiet")
        command += ["--report", str(report), "--only-binary", ":all:", *Target().options()]
        say(f"finding {len(config.roots)} distributions with pip")
        answer = run_client(
            [*command, "--target", f"{scratch}/target", *config.roots],
            title="finding distributions with pip",
            say=say,
            limit_s=1800,
        )
        if answer.code != 0:
            raise WmlceError(
                f"pip does not find what {title} names",
                detail=problem_lines(answer),
                remedy="correct the versions, and check the network (wmlce doctor)",
            )
        resolved = [Resolved(item) for item in json.loads(report.read_text())["install"]]
    without = [item.file for item in resolved if not item.sha256]
    if without:
        raise WmlceError(f"pip reported no sha256 for {without[0]}", remedy="use an index with hashes")
    return resolved


def _twice(names: Mapping[str, Sequence[str]], config: WheelConfig) -> list[str]:
    """Files that two wheels would put into the same place, and libraries that two of them bring."""
    owners: dict[str, str] = {}
    duplicates = []
    for wheel in sorted(names):
        left_out = config.rules(wheel).leave_out
        for name in sorted(names[wheel]):
            path = PurePosixPath(name)
            if name.endswith("/") or any(fnmatch.fnmatch(name, pattern) for pattern in left_out):
                continue
            library = _LIBRARY.fullmatch(path.name)
            for key in filter(None, [name, library and path.name]):
                other = owners.setdefault(key, wheel)
                if other != wheel:
                    duplicates.append(f"{key}: {other} and {wheel}")
    return sorted(set(duplicates))


def _needs(
    name: str, metadata: Message, config: WheelConfig, environment: Mapping[str, str]
) -> list[Requirement]:
    """What a distribution needs on the target, with the extras that it is wanted with."""
    needs: dict[str, Requirement] = {}
    for text in metadata.get_all("Requires-Dist", []):
        requirement = Requirement(str(text))
        marker, requirement.marker = requirement.marker, None
        extras = ("", *config.rules(name).extras)
        if marker is not None and not any(marker.evaluate({**environment, "extra": e}) for e in extras):
            continue
        other = canonicalize_name(requirement.name)
        if other in needs:
            needs[other].specifier &= requirement.specifier
        else:
            needs[other] = requirement
    return list(needs.values())


def _met(
    requirement: Requirement, name: str, of: str, versions: Mapping[str, str], config: WheelConfig
) -> bool:
    rules = config.rules(of)
    if name in config.drop or name in {canonicalize_name(other) for other in rules.drop}:
        return True
    if name in config.provided:
        return True
    specifier = SpecifierSet(rules.requires[name]) if name in rules.requires else requirement.specifier
    version = versions.get(config.replace.get(name, name))
    return version is not None and specifier.contains(version, prereleases=True)
