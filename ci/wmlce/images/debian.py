"""The Debian packages that images are made of and with, at exact content: containers/debian.lock.yaml.

`wmlce lock image` renews it. They are fetched like the sources of packages: where Debian no longer has a
locked revision its present one stands in and is said, unless --locked; --offline and $WMLCE_SOURCES give them
from a folder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from wmlce.sources import drift
from wmlce.sources.apt import as_locked
from wmlce.sources.debian import open_suite
from wmlce.sources.model import SUITE, LockedArtifact, LockedSource, read_lock
from wmlce.sources.store import SourceLock, replan_when_moved
from wmlce.util.errors import WmlceError
from wmlce.util.files import write_atomic
from wmlce.util.layout import Layout

LIST = "debian-packages.txt"
LOCK = "debian.lock.yaml"
BASE = "image"
TOOLS = {"umoci": SUITE, "apptainer": "sid"}
"""Programs that make images, and the release of Debian that has them."""
_HEAD = "# Written by `wmlce lock image` from debian-packages.txt; changes by hand are lost.\n"
Say = Callable[[str], None]


@dataclass(frozen=True)
class DebianPackage:
    """A package as an image records it. path: where its file lies."""

    name: str
    version: str
    file: str
    sha256: str
    path: Path = field(compare=False)

    def described(self) -> dict[str, str]:
        return {"name": self.name, "version": self.version, "file": self.file, "sha256": self.sha256}


def listed_names(listing: Path) -> list[str]:
    """The names in a list of packages: the first word of each line."""
    try:
        lines = listing.read_text().splitlines()
    except OSError as error:
        raise WmlceError(
            f"{listing} cannot be read: {error.strerror}", remedy="restore it from git"
        ) from error
    return [line.split()[0] for line in lines if line.strip() and not line.startswith("#")]


def lock_path(layout: Layout) -> Path:
    return layout.root / "containers" / LOCK


def locked(layout: Layout, names: Sequence[str]) -> list[LockedArtifact]:
    """The locked file of each package, or that of the revision that stands in for it in this clone."""
    lock = SourceLock(layout, read_lock(lock_path(layout)))
    by_package = {item.entry.package: item for item in lock.by_file.values()}
    absent = [name for name in names if name not in by_package]
    if absent:
        raise WmlceError(
            f"containers/{LOCK} has no {', '.join(absent[:4])}",
            remedy=f"correct containers/{LIST}, or lock what it names: wmlce lock image",
        )
    return [by_package[name] for name in names]


def fetch(layout: Layout, names: Sequence[str], say: Say) -> list[DebianPackage]:
    """The packages, their files in the cache with checked content."""

    def attempt() -> list[DebianPackage]:
        lock = SourceLock(layout, read_lock(lock_path(layout)))
        items = locked(layout, names)
        lock.fetch(items, say)
        for line in drift.notes(items):
            say(f"NOTE: {line}")
        return [
            DebianPackage(
                item.entry.package,
                item.entry.version,
                item.fetched_name,
                item.file.sha256,
                lock.checked(item),
            )
            for item in items
        ]

    return replan_when_moved(attempt, say)


def relock(layout: Layout, say: Say) -> list[str]:
    """Lock what Debian has now, on lists that it signed; returns what changed, in words."""
    before = read_lock(lock_path(layout))
    versions = {entry.package: entry.version for entry in before}
    names = listed_names(layout.root / "containers" / LIST)
    entries = _offered(layout, SUITE, names, BASE, before, say)
    for name, suite in TOOLS.items():
        entries += _offered(layout, suite, [name], name, before, say)
    text = yaml.safe_dump(
        [entry.model_dump(exclude_none=True) for entry in sorted(entries, key=lambda entry: entry.package)],
        sort_keys=False,
        width=110,
    )
    write_atomic(lock_path(layout), _HEAD + text)
    return [
        f"{entry.package}: {versions.get(entry.package, 'new')} -> {entry.version}"
        for entry in entries
        if versions.get(entry.package) != entry.version
    ]


def _offered(
    layout: Layout, suite: str, names: Sequence[str], user: str, before: Sequence[LockedSource], say: Say
) -> list[LockedSource]:
    release = open_suite(layout, say, suite=suite)
    release.update(force=True)
    newest = {name: release.offers("debian-binary", name)[:1] for name in names}
    missing = [name for name, offered in newest.items() if not offered]
    if missing:
        raise WmlceError(
            f"Debian {suite} has no package {', '.join(missing[:4])}",
            remedy=f"correct containers/{LIST}",
        )
    candidates = [
        (name, offer.version, file, sha256)
        for name, [offer] in newest.items()
        for file, sha256 in offer.files.items()
    ]
    return as_locked(suite, user, candidates, before)
