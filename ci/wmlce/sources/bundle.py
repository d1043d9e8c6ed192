"""All sources of a release in one folder, for machines without a network and for the day when a mirror
lacks one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from wmlce.sources.model import LockedArtifact
from wmlce.sources.store import SourceLock
from wmlce.util.errors import WmlceError
from wmlce.util.files import disk_errors, link_or_copy, sha256_file, write_atomic

MANIFEST = "SHA256SUMS"
"""In the form that `sha256sum -c` reads."""


@dataclass(frozen=True)
class Bundle:
    """files: how many it holds. written: how many of them now. size: of all, in bytes."""

    files: int
    written: int
    size: int


def write(
    lock: SourceLock, wanted: Sequence[LockedArtifact], folder: Path, say: Callable[[str], None]
) -> Bundle:
    """Fetch what the cache has not, and write all of it with a manifest; whole files that are there
    already stay.

    A release's bundle holds what its lock files name and nothing that stands in for it.
    """
    moved = sorted({item.entry.title() for item in wanted if item.replaces is not None})
    if moved:
        raise WmlceError(
            f"this clone builds from other Debian revisions than the locked ones: {', '.join(moved)}",
            remedy="lock them (wmlce lock sources) and write the bundle then, "
            "or take the locked ones where they are "
            "still to be had: wmlce --locked source bundle DIR",
        )
    if folder.exists() and not folder.is_dir():
        raise WmlceError(f"{folder} is not a folder", remedy="name another one")
    with disk_errors(f"writing the folder {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
    written = [item for item in wanted if not _whole(folder / item.file.name, item.file.sha256)]
    # whatever fails, the files that could be had are in the folder, and the next run goes on from there
    try:
        lock.fetch(written, say, exact=True)
    finally:
        for item in written:
            if lock.present(item):
                link_or_copy(lock.checked(item), folder / item.file.name)
    lines = {**_manifest(folder), **{item.file.name: item.file.sha256 for item in wanted}}
    write_atomic(folder / MANIFEST, "".join(f"{lines[name]}  {name}\n" for name in sorted(lines)))
    return Bundle(len(wanted), len(written), sum((folder / item.file.name).stat().st_size for item in wanted))


def _whole(path: Path, sha256: str) -> bool:
    return path.is_file() and sha256_file(path) == sha256


def _manifest(folder: Path) -> dict[str, str]:
    """What the folder already lists and has, so that bundles of several releases can share one."""
    path = folder / MANIFEST
    if not path.is_file():
        return {}
    found = re.findall(r"^([0-9a-f]{64}) [ *]([^/\n]+)$", path.read_text(), re.MULTILINE)
    return {name: digest for digest, name in found if (folder / name).is_file()}
