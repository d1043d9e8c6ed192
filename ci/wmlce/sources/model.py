"""What the lock files of sources say: packages of public archives at exact versions and content."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import yaml
from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from wmlce.util.errors import WmlceError
from wmlce.util.layout import Layout

Kind = Literal["debian-source", "debian-binary", "python"]
Origin = Literal["debian", "pypi", "pytorch-cpu"]

SUITE = "bookworm"
"""The Debian release of sources whose entry names none."""

SOURCE_LOCKS = ("sources.lock.yaml", "build-root.lock.yaml")
"""Lock files of this form in recipes/. The second holds the packages of the build root."""

ARCHIVES: dict[Origin, str] = {
    "debian": "Debian",
    "pypi": "the Python package index",
    "pytorch-cpu": "PyTorch's CPU wheel index",
}

_SOURCE_FILE = re.compile(
    r"^[^_]+_.+?\.(?P<role>orig(?:-[A-Za-z0-9-]+)?\.tar|debian\.tar|diff|tar|dsc)(?:\.(?P<end>[a-z0-9]+(?:\.asc)?))?$"
)


class LockedFile(BaseModel):
    """One file with the digest of its content."""

    model_config = ConfigDict(extra="forbid")
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+~_%!-]*$")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size: int | None = None


class LockedSource(BaseModel):
    """One package of a public archive at an exact version, and those of its files that recipes use.

    origin:   where anyone gets it
    suite:    the Debian release
    snapshot: a time at which Debian had exactly this, for its permanent snapshot archive
    variant:  the variant of the channel that alone uses it
    redistribute: may its files be given to others?
    """

    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    recipes: list[str] = Field(validation_alias=AliasChoices("recipes", "recipe"))
    kind: Kind
    origin: Origin
    suite: str | None = Field(default=None, pattern=r"^[a-z][a-z0-9-]*$")
    # both become arguments of apt-get and pip, so nothing that these read as an option or an operator
    package: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+_-]*$")
    version: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+~:_!-]*$")
    snapshot: str | None = Field(default=None, pattern=r"^[0-9]{8}T[0-9]{6}Z$")
    files: list[LockedFile] = Field(min_length=1)
    # of wheels; their lock file is of another form
    variant: str | None = Field(default=None, exclude=True)
    redistribute: bool = Field(default=True, exclude=True)

    @model_validator(mode="before")
    @classmethod
    def _origin_by_kind(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        debian = str(value.get("kind", "")).startswith("debian-")
        defaults = {"origin": "debian", "suite": SUITE} if debian else {"origin": "pypi"}
        return {**defaults, **value}

    @model_validator(mode="after")
    def _origin_has_kind(self) -> LockedSource:
        if (self.origin == "debian") != self.kind.startswith("debian-"):
            raise ValueError(f"{self.origin} has nothing of the kind {self.kind}")
        if self.origin != "debian" and (self.suite or self.snapshot):
            raise ValueError(f"suite and snapshot are Debian's: {self.origin} has none")
        return self

    @field_validator("recipes", mode="before")
    @classmethod
    def _one_or_many(cls, value: object) -> object:
        return [value] if isinstance(value, str) else value

    @field_validator("version", mode="before")
    @classmethod
    def _text(cls, value: object) -> object:
        return str(value)

    @property
    def archive(self) -> str:
        """The origin in words."""
        return f"Debian {self.suite}" if self.origin == "debian" else ARCHIVES[self.origin]

    def title(self) -> str:
        return f"{self.package} {self.version}"


@dataclass(frozen=True)
class LockedArtifact:
    """A locked file together with the entry that says where it comes from.

    archive_name: what the archive calls it, where Debian has moved on and the recipes still use the old name
    replaces:     the version that the lock file names, in that case
    """

    entry: LockedSource
    file: LockedFile
    archive_name: str = ""
    replaces: str | None = None

    @property
    def fetched_name(self) -> str:
        """Under which the archive's client leaves it."""
        return self.archive_name or self.file.name

    def recipes(self) -> str:
        return ", ".join(self.entry.recipes)


def role(name: str) -> str:
    """What a Debian source file is, without version and compression: orig.tar, debian.tar, tar, diff, dsc."""
    match = _SOURCE_FILE.match(name)
    if match is None:
        return name
    return f"{match['role']}.asc" if (match["end"] or "").endswith("asc") else match["role"]


def read_source_lock(layout: Layout) -> list[LockedSource]:
    """recipes/sources.lock.yaml, checked."""
    return read_lock(layout.recipes / SOURCE_LOCKS[0])


def read_source_locks(layout: Layout) -> list[LockedSource]:
    """All lock files of this form, checked."""
    return [entry for name in SOURCE_LOCKS for entry in read_lock(layout.recipes / name)]


_LOCK_COMMANDS = {
    "sources.lock.yaml": "sources",
    "build-root.lock.yaml": "build-root",
    "binary-sources.lock.yaml": "binary-sources",
    "debian.lock.yaml": "image",
}
"""What writes a lock file: `wmlce lock …`."""


def read_lock(path: Path) -> list[LockedSource]:
    """One lock file, checked; an absent file locks nothing."""
    if not path.is_file():
        return []
    try:
        raw = yaml.safe_load(path.read_text()) or []
        if not isinstance(raw, list):
            raise TypeError("it is not a list")
        return [LockedSource.model_validate(item) for item in raw]
    except (yaml.YAMLError, ValidationError, TypeError) as error:
        raise WmlceError(
            f"{path.parent.name}/{path.name} is damaged",
            detail=_told(error),
            remedy="restore it from git, or write it again with "
            f"`wmlce lock {_LOCK_COMMANDS.get(path.name, 'sources')}`",
        ) from error


def _told(error: Exception) -> Sequence[str]:
    if not isinstance(error, ValidationError):
        return str(error).splitlines()[:12]
    lines = []
    for item in error.errors()[:12]:
        value = "" if isinstance(item["input"], dict) else f" (found {str(item['input'])[:80]!r})"
        lines.append(f"{'.'.join(map(str, item['loc'])) or 'entry'}: {item['msg']}{value}")
    return lines
