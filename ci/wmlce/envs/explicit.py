"""Explicit locks: the packages of an environment by file name and sha256, one a line.

The format is that of `conda list --explicit`, which conda, mamba and micromamba install as it is. Here only
the file names and digests count: the channel may have moved since.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rattler.repo_data.record import RepoDataRecord

from wmlce.channel import published
from wmlce.util import conda_meta, platform
from wmlce.util.errors import WmlceError
from wmlce.util.files import sha256_file, text_of
from wmlce.util.layout import Layout

LINE = re.compile(
    rf"^(?:(?P<base>\S*)/)?(?P<subdir>{'|'.join(platform.SUBDIRS)})/(?P<file>[A-Za-z0-9][A-Za-z0-9._+!-]*\.conda)"
    rf"#(?:sha256:)?(?P<sha256>[0-9a-f]{{64}})$"
)


@dataclass(frozen=True)
class Lock:
    """packages: `subdir/file` -> sha256. digest: of all of them."""

    packages: dict[str, str]

    @property
    def digest(self) -> str:
        text = "".join(f"{key} {sha256}\n" for key, sha256 in sorted(self.packages.items()))
        return hashlib.sha256(text.encode()).hexdigest()


def platform_lines() -> str:
    """What conda reads at the beginning of an explicit list."""
    head = "# or conda create --name NAME --file FILE\n"
    return f"{head}# platform: {platform.of_this_machine().subdir}\n@EXPLICIT\n"


def of_environment(prefix: Path, base: str) -> str:
    """The lock of an installed environment; `base` is the URL of the channel to name in it."""
    lines = []
    for path, record in conda_meta.all_of(prefix).items():
        if not record.get("sha256"):
            raise WmlceError(
                f"{prefix}: no sha256 is known of {record.get('fn', path.name)}",
                remedy="it came from elsewhere; recreate the environment: wmlce env create",
            )
        lines.append(f"{base.rstrip('/')}/{record['subdir']}/{record['fn']}#sha256:{record['sha256']}")
    if not lines:
        raise WmlceError(f"{prefix} is not an environment", remedy="see: wmlce env list")
    head = "# Made by `wmlce env lock`. Install it with: wmlce env create NAME --lock FILE,\n"
    return head + platform_lines() + "\n".join(lines) + "\n"


def read(path: Path) -> Lock:
    """The packages that a lock names; a line that names none is an error."""
    try:
        text = text_of(path)
    except (OSError, UnicodeDecodeError) as error:
        raise WmlceError(
            f"{path} cannot be read: {error}", remedy="name a file of `wmlce env lock`"
        ) from error
    packages: dict[str, str] = {}
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if not line or line == "@EXPLICIT" or line.startswith("#"):
            continue
        match = LINE.match(line)
        if match is None:
            raise WmlceError(
                f"{path}:{number} names no package with its sha256: {line[:120]}",
                remedy="a line is URL/SUBDIR/FILE.conda#sha256:DIGEST; write it again: wmlce env lock",
            )
        packages[f"{match['subdir']}/{match['file']}"] = match["sha256"]
    if not packages:
        raise WmlceError(f"{path} names no package", remedy="name a file of `wmlce env lock`")
    return Lock(packages)


def records(layout: Layout, lock: Lock, channel: Path) -> list[RepoDataRecord]:
    """The locked packages out of `channel`, else out of the cache; each with the locked content."""
    places = {
        key: _find((channel, layout.cached_packages), key, sha256) for key, sha256 in lock.packages.items()
    }
    absent = [key for key, path in places.items() if path is None]
    if absent:
        held = published.read(channel)
        other = [key for key in absent if held.sha256(key) not in (None, lock.packages[key])]
        raise WmlceError(
            f"the channel has not all packages of the lock: {len(absent)} of {len(places)} are missing",
            detail=[f"{key}: another content" if key in other else key for key in absent[:10]],
            remedy="they were pruned, or built elsewhere: put the .conda files of that release into "
            "build/channel and run `wmlce channel index`, or build that release from its own sources",
        )
    result = asyncio.run(_read_records([path for path in places.values() if path is not None]))
    for record, (key, sha256) in zip(result, lock.packages.items(), strict=True):
        if record.sha256 is None or record.sha256.hex() != sha256:
            raise WmlceError(
                f"{places[key]} was changed while it was read",
                remedy="see who writes there, and run the command again",
            )
    return result


def _find(folders: Sequence[Path], key: str, sha256: str) -> Path | None:
    for folder in folders:
        path = folder / key
        if path.is_file() and sha256_file(path) == sha256:
            return path
    return None


async def _read_records(paths: Sequence[Path]) -> list[RepoDataRecord]:
    return [await RepoDataRecord.from_package_archive(path) for path in paths]
