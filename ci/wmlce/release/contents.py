"""The channel and the locks of a release."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from packaging.version import Version

from wmlce.channel import conda_forge_overlay, published
from wmlce.channel.verify import Check, of_channel
from wmlce.envs import environments, explicit
from wmlce.installer.contents import glibc
from wmlce.recipes.licenses import PROPRIETARY
from wmlce.recipes.variant import read_all
from wmlce.release import freshness, manifest, shards
from wmlce.release.freshness import Statement
from wmlce.util.errors import WmlceError
from wmlce.util.files import link_or_copy, remove_tree, sha256_file, write_atomic
from wmlce.util.layout import Layout

Say = Callable[[str], None]


@dataclass(frozen=True)
class Selection:
    """entries: `subdir/file` -> entry of the index. left_out: why some current packages are in no release."""

    entries: dict[str, dict[str, Any]]
    left_out: list[str]


def select(layout: Layout, source: Path) -> Selection:
    """The current packages of a channel: no earlier builds, and nothing that a site has to build itself."""
    current = published.read(source).packages
    if not current:
        raise WmlceError(
            f"{source} is not a channel that wmlce published: it has no channel.json",
            remedy="build it: wmlce channel build",
        )
    variants = read_all(layout)
    entries: dict[str, dict[str, Any]] = {}
    left_out = []
    for key, entry in sorted(published.entries(source).items()):
        if key not in current:
            continue
        owner = next((name for name, variant in variants.items() if variant.owns_build(entry["build"])), None)
        if owner is not None:
            left_out.append(f"{key}: of the variant {owner}, which sites build")
        elif str(entry.get("license_family") or "").upper() == PROPRIETARY:
            left_out.append(f"{key}: {entry.get('license')} does not let us pass it on")
        else:
            entries[key] = entry
    absent = sorted(current.keys() - entries.keys() - {line.partition(": ")[0] for line in left_out})
    if absent:
        raise WmlceError(
            f"{len(absent)} packages of {source} are not in its index: {absent[0]}",
            remedy="rebuild the channel's index: wmlce channel index",
        )
    return Selection(entries, left_out)


def write_channel(
    layout: Layout, source: Path, selection: Selection, target: Path, time: int, statement: Statement
) -> None:
    """A channel of these packages, indexed and listed: the same bytes each time, with `time` for the times of
    indexing.
    """
    part = target.with_name(f".{target.name}.part")
    remove_tree(part)
    recorded = published.read(source)
    for key, entry in selection.entries.items():
        digest = sha256_file(source / key)
        if digest != recorded.packages[key] or digest != entry.get("sha256"):
            raise WmlceError(
                f"{source / key} is not the package that was published: its sha256 differs",
                remedy="put the right one back: wmlce channel build",
            )
        link_or_copy(source / key, part / key)
    stamped = {key: {**entry, "indexed_timestamp": time * 1000} for key, entry in selection.entries.items()}
    published.index(part, stamped)
    _merge(part, stamped)
    extra = conda_forge_overlay.fill(layout, part)
    if extra is not None:
        published.index(extra, stamped)
        extra.chmod(0o755)
    for place in part.rglob(shards.NAME):
        shards.normalize(place, time)
    published.Published({key: str(entry["sha256"]) for key, entry in selection.entries.items()}).write(part)
    statement.write(part / freshness.NAME)
    digests = {key: str(entry["sha256"]) for key, entry in selection.entries.items()}
    if extra is not None:
        replace(statement, name=f"{statement.name}/{extra.name}").write(extra / freshness.NAME)
        inner = {key: digest for key, digest in digests.items() if (extra / key).is_file()}
        manifest.write(extra, inner)
        digests |= {f"{conda_forge_overlay.FOLDER}/{key}": digest for key, digest in inner.items()}
    manifest.write(part, digests)
    part.chmod(0o755)
    os.rename(part, target)


def _merge(folder: Path, entries: dict[str, dict[str, Any]]) -> None:
    """Every package has to be in the index that was just written."""
    existing = published.entries(folder).keys()
    if existing != entries.keys():
        raise WmlceError(
            f"the index of the release's channel has other packages than the channel: "
            f"{sorted(existing ^ entries.keys())[0]}"
        )


def verify(layout: Layout, folder: Path, say: Say) -> list[Check]:
    """What `wmlce channel verify` asks of a channel, of this one."""
    say("verifying the channel of the release")
    checks = of_channel(layout, folder, say)
    wrong = [check for check in checks if not check.ok]
    if wrong:
        raise WmlceError(
            f"the channel is not fit to be released: {', '.join(check.name for check in wrong)}",
            detail=[finding for check in wrong for finding in check.findings][:20],
            remedy="fix the recipes concerned, then: wmlce channel build && wmlce channel verify",
        )
    return checks


@dataclass(frozen=True)
class Locked:
    """What installing a package brings: number of packages, bytes to fetch, the oldest glibc."""

    packages: int
    size: int
    glibc: str


def write_locks(channel: Path, names: Sequence[str], base: str, folder: Path) -> dict[str, Locked]:
    """FOLDER/NAME.lock of each package: everything that it needs, with sha256, in the form of
    `conda list --explicit`. base: the address of the channel.
    """
    locked = {}
    for name in names:
        records = environments.solve_channel(channel, [name])
        lines = sorted(
            f"{base.rstrip('/')}/{record.subdir}/{record.file_name}#sha256:{(record.sha256 or b'').hex()}"
            for record in records
        )
        head = f"# {name}. Install it with: wmlce env create NAME --lock FILE,\n"
        head += explicit.platform_lines()
        write_atomic(folder / f"{name}.lock", head + "\n".join(lines) + "\n")
        size = sum(record.size or 0 for record in records)
        locked[name] = Locked(len(records), size, str(glibc(records)))
    return locked


def floor_of(depends: Sequence[str]) -> Version:
    """The oldest glibc that an index entry allows; 0 where it says nothing."""
    import re

    matches = [re.match(r"__glibc\s*>=\s*([0-9]+(?:\.[0-9]+)*)", text) for text in depends]
    return max((Version(match[1]) for match in matches if match), default=Version("0"))
