"""All sources of a release in one folder, for machines without a network and for the day when a mirror
lacks one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from wmlce.sources import relock_tools
from wmlce.sources.model import LockedArtifact
from wmlce.sources.store import SourceLock
from wmlce.util.errors import WmlceError
from wmlce.util.files import disk_errors, link_or_copy, sha256_file, write_atomic

MANIFEST = "SHA256SUMS"
"""In the form that `sha256sum -c` reads."""
TOOLS = "tools"
"""Below the folder: what ci/bootstrap.sh makes the tool environment of, where there is no network."""


@dataclass(frozen=True)
class Bundle:
    """files: how many it holds. written: how many of them now. size: of all, in bytes."""

    files: int
    written: int
    size: int


def write(
    lock: SourceLock,
    items: Sequence[LockedArtifact],
    folder: Path,
    say: Callable[[str], None],
    *,
    tools: bool = False,
) -> Bundle:
    """Fetch what the cache has not, and write all of it with a manifest; whole files that are there already
    stay. `tools`: the wheels of the tool environment too, in the folder `tools`.

    A release's bundle holds what its lock files name and nothing that stands in for it.
    """
    moved = sorted({item.entry.title() for item in items if item.replaces is not None})
    if moved:
        raise WmlceError(
            f"this clone builds from other Debian revisions than the locked ones: {', '.join(moved)}",
            remedy="lock them (wmlce lock sources) and write the bundle then; or, where the locked ones are "
            "still to be had: wmlce --locked source bundle DIR",
        )
    if folder.exists() and not folder.is_dir():
        raise WmlceError(f"{folder} is not a folder", remedy="name another one")
    with disk_errors(f"writing the folder {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
    new = [item for item in items if not _whole(folder / item.file.name, item.file.sha256)]
    # whatever fails, the files that could be had are in the folder, and the next run goes on from there
    try:
        lock.tell_size(new, say)
        lock.fetch(new, say, exact=True)
    finally:
        for item in new:
            if lock.present(item):
                link_or_copy(lock.checked(item), folder / item.file.name)
    digests = {item.file.name: item.file.sha256 for item in items}
    if tools:
        for path in relock_tools.fetch(lock.layout, folder / TOOLS, say):
            digests[f"{TOOLS}/{path.name}"] = sha256_file(path)
    lines = {**_manifest(folder), **digests}
    write_atomic(folder / MANIFEST, "".join(f"{lines[name]}  {name}\n" for name in sorted(lines)))
    return Bundle(len(digests), len(new), sum((folder / name).stat().st_size for name in digests))


def _whole(path: Path, sha256: str) -> bool:
    return path.is_file() and sha256_file(path) == sha256


def _manifest(folder: Path) -> dict[str, str]:
    """What the folder already lists and has, so that bundles of several releases can share one."""
    path = folder / MANIFEST
    if not path.is_file():
        return {}
    matches = re.findall(r"^([0-9a-f]{64}) [ *]((?:tools/)?[^/\n]+)$", path.read_text(), re.MULTILINE)
    return {name: digest for digest, name in matches if (folder / name).is_file()}
