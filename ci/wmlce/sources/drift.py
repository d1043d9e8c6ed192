"""Debian revisions that took the place of locked ones: chosen by the fetcher, kept for the clone, undone
by a lock.

A release's mirrors keep one revision of a package. When the locked one is gone, the clone takes the one
that is there, under the file names that the recipes use; its content counts in the content hash like any
other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from wmlce.sources.model import Kind, LockedArtifact, LockedFile, LockedSource, read_source_locks
from wmlce.sources.settings import Settings
from wmlce.util.errors import WmlceError
from wmlce.util.files import write_atomic
from wmlce.util.layout import Layout

_HEAD = """\
# Debian has moved on since the sources were locked; these revisions stand in, in this clone only. Written
# by wmlce after apt had checked Debian's signature; without effect with --locked, and once the lock files
# name others.
"""


class MovedFile(LockedFile):
    """`name` is what recipes call it, `archive_name` what Debian calls it now."""

    locked_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    archive_name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+~_%!-]*$")


class MovedSource(BaseModel):
    """One package in another version than the locked one."""

    model_config = ConfigDict(extra="forbid")
    recipes: list[str]
    kind: Kind
    suite: str
    package: str
    locked: str
    version: str
    files: list[MovedFile] = Field(min_length=1)

    def stands_for(self, entry: LockedSource) -> bool:
        """Is it about this entry, as the lock file has it now?"""
        return (self.kind, self.suite, self.package, self.locked) == (
            entry.kind,
            entry.suite,
            entry.package,
            entry.version,
        ) and {(file.name, file.locked_sha256) for file in self.files} == {
            (file.name, file.sha256) for file in entry.files
        }

    def title(self) -> str:
        return f"{self.package} {self.version} instead of {self.locked}"


class SourcesMoved(WmlceError):
    """The archive has moved on, and what it has now is in the cache: whoever planned has to plan again."""

    def __init__(self, moved: Sequence[MovedSource]) -> None:
        super().__init__(
            f"Debian has moved on: {', '.join(item.title() for item in moved)}",
            remedy="run the command again: it takes what Debian has now",
        )
        self.moved = list(moved)


def record(layout: Layout) -> Path:
    """Where the clone keeps its moved sources."""
    return layout.build / "moved-sources.lock.yaml"


def read(layout: Layout) -> list[MovedSource]:
    """What the clone has recorded."""
    path = record(layout)
    if not path.is_file():
        return []
    try:
        return [MovedSource.model_validate(item) for item in yaml.safe_load(path.read_text()) or []]
    except (yaml.YAMLError, ValidationError, TypeError) as error:
        raise WmlceError(
            f"{layout.display(path)} is damaged",
            detail=str(error).splitlines()[:6],
            remedy="delete it and run the command again: Debian is then asked again",
        ) from error


def in_use(layout: Layout) -> list[MovedSource]:
    """The substitutes for what the lock files name now; none with --locked."""
    recorded = [] if Settings.from_environment().locked else read(layout)
    entries = read_source_locks(layout) if recorded else []
    return [item for item in recorded if any(item.stands_for(entry) for entry in entries)]


def add(layout: Layout, fresh: Iterable[MovedSource]) -> None:
    """Record more of them; a newer one about the same package takes the older one's place."""
    records = {(item.kind, item.suite, item.package): item for item in [*read(layout), *fresh]}
    text = yaml.safe_dump([item.model_dump() for item in records.values()], sort_keys=False, width=110)
    write_atomic(record(layout), _HEAD + text)


def artifacts(entry: LockedSource, moved: Sequence[MovedSource]) -> list[LockedArtifact]:
    """The files of an entry, as locked or as they have moved."""
    substitute = next((item for item in moved if item.stands_for(entry)), None)
    if substitute is None:
        return [LockedArtifact(entry, file) for file in entry.files]
    files = [LockedFile(name=file.name, sha256=file.sha256) for file in substitute.files]
    stand_in = entry.model_copy(update={"version": substitute.version, "files": files, "snapshot": None})
    return [
        LockedArtifact(stand_in, file, archive_name=recorded.archive_name, replaces=substitute.locked)
        for file, recorded in zip(files, substitute.files, strict=True)
    ]


def upstream(version: str) -> str:
    """The version of the program itself: Debian's epoch, revision and repacking marks taken off."""
    plain = version.partition(":")[2] or version
    if "-" in plain:
        plain = plain.rpartition("-")[0]
    plain = re.sub(r"[+~]deb\d+u\d+$", "", plain)
    return re.sub(r"[.+~](dfsg|ds|repack)[0-9.]*$", "", plain)


def recipe_text(text: str, recipe: str, moved: Iterable[MovedSource]) -> str:
    """A recipe with the version of its moved source where it names the locked one. Names of files stay."""
    for item in moved:
        old, new = upstream(item.locked), upstream(item.version)
        if recipe in item.recipes and old != new:
            text = re.sub(rf"(?<![\w.+~-]){re.escape(old)}(?![\w+~-]|\.\w)", new, text)
    return text


def notes(items: Iterable[LockedArtifact]) -> list[str]:
    """A line for each package among these files that is not the locked one."""
    lines = {
        f"{item.entry.package} is Debian's {item.entry.version}, not the locked {item.replaces}"
        for item in items
        if item.replaces is not None
    }
    return sorted(lines)
