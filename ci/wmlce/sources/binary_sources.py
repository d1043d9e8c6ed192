"""Sources of binaries that the channel passes on: recipes/binary-sources.yaml says which belong to which
files, binary-sources.lock.yaml locks them. A release holds them; no build needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from wmlce.sources.model import LockedSource, read_lock
from wmlce.sources.relock import Addition, Locker
from wmlce.util.errors import WmlceError
from wmlce.util.files import write_atomic
from wmlce.util.layout import Layout

DECLARED = "binary-sources.yaml"
LOCK = "binary-sources.lock.yaml"
WHOLE = "*"
"""Pattern of files that means the whole package."""
_SOURCE_FILES = {"debian-source": ("*.dsc", "*.tar.*", "*.diff.gz"), "python": ("*.tar.gz", "*.zip")}


class Source(BaseModel):
    """A source package: its archive and version."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    kind: Literal["debian-source", "python"]
    suite: str | None = None
    package: str
    version: str


class Declared(BaseModel):
    """The source of some packages' files, or why there is none."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    packages: list[str] = Field(min_length=1)
    files: str = Field(min_length=1)
    source: Source | None = None
    without: str | None = Field(default=None, min_length=40)

    @model_validator(mode="after")
    def _one_of_both(self) -> Declared:
        if (self.source is None) == (self.without is None):
            raise ValueError("it needs either `source` or `without`")
        return self

    def covers(self, package: str, file: str) -> bool:
        return package in self.packages and (self.files == WHOLE or fnmatchcase(file, self.files))


def read(layout: Layout) -> list[Declared]:
    """What is declared; nothing where there is no file."""
    path = layout.recipes / DECLARED
    if not path.is_file():
        return []
    try:
        return [Declared.model_validate(item) for item in yaml.safe_load(path.read_text()) or []]
    except (yaml.YAMLError, ValidationError, TypeError) as error:
        raise WmlceError(
            f"recipes/{DECLARED} is damaged",
            detail=str(error).splitlines()[:6],
            remedy="each entry has packages, files, and either source or without (40 characters or more)",
        ) from error


def locked(layout: Layout, declared: Iterable[Declared]) -> dict[Source, LockedSource]:
    """The sources of declarations as they are locked; an error where one is not."""
    entries = {(item.kind, item.package, item.version): item for item in read_lock(layout.recipes / LOCK)}
    sources = {}
    for source in sorted({item.source for item in declared if item.source is not None}, key=repr):
        entry = entries.get((source.kind, source.package, source.version))
        if entry is None or (source.suite is not None and entry.suite != source.suite):
            raise WmlceError(
                f"recipes/{LOCK} does not lock {source.package} {source.version}, the source of binaries",
                remedy="lock it: wmlce lock binary-sources",
            )
        sources[source] = entry
    return sources


def lock(layout: Layout, say: Callable[[str], None]) -> list[str]:
    """Lock every declared source in its version, all files of it; returns what changed, in words."""
    path = layout.recipes / LOCK
    before = {(entry.kind, entry.package, entry.version): entry for entry in read_lock(path)}
    users: dict[Source, list[str]] = {}
    for item in read(layout):
        if item.source is not None:
            users.setdefault(item.source, []).extend(item.packages)
    locker = Locker(layout, say, upgrade=False)
    entries = []
    changes = []
    for source, packages in sorted(users.items(), key=repr):
        names = sorted(set(packages))
        old = before.pop((source.kind, source.package, source.version), None)
        if old is not None and old.recipes == names:
            entries.append(old)
            continue
        origin: Literal["debian", "pypi"] = "pypi" if source.kind == "python" else "debian"
        patterns = _SOURCE_FILES[source.kind]
        addition = Addition(
            source.kind, origin, source.package, source.version, names[0], patterns, source.suite
        )
        entries.append(locker.add(addition, ["dsc"]).model_copy(update={"recipes": names}))
        changes.append(f"{source.package} {source.version}: the source of {', '.join(names)}")
    changes += [f"{package} {version}: of no declared binary any more" for _, package, version in before]
    head = f"# Sources of binaries, for releases. Written by `wmlce lock binary-sources` from {DECLARED}.\n"
    dumped = [entry.model_dump(exclude_none=True) for entry in entries]
    write_atomic(path, head + yaml.safe_dump(dumped, sort_keys=False, width=110))
    return changes
