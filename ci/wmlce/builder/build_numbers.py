"""Build numbers, by which every client tells that a package is newer although its version is the same.

A package's number is the sum of three:
- the recipe's own `number`;
- of Debian sources, a number made of their revision: a security fix changes that, and not the version;
- what recipes/numbers.lock.yaml adds: `wmlce lock numbers` raises it where something else has changed
  since the release before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from wmlce.sources.model import LockedArtifact
from wmlce.util.errors import WmlceError
from wmlce.util.files import write_atomic
from wmlce.util.layout import Layout

_REVISION = re.compile(r"^(?P<revision>\d+)(?:\.(?P<nmu>\d+))?")
_UPDATE = re.compile(r"(?P<sign>[+~])(?:deb\d+u|b|nmu|build|ubuntu)(?P<update>\d+)")
_HEAD = "# Build numbers of the last release. Written by `wmlce lock numbers`.\n"


class LockedNumber(BaseModel):
    """What a recipe made at the last release.

    versions: of its packages
    number:   their build number
    added:    what is added to the recipe's own number and that of its Debian revision
    content:  digest of everything that decided what was built
    """

    model_config = ConfigDict(extra="forbid")
    versions: dict[str, str]
    number: int = Field(ge=0)
    added: int = Field(ge=0)
    content: str

    def goes_on(self, versions: Mapping[str, str]) -> bool:
        """Is a package of these versions one of the last release's? Only where all versions are new do
        numbers start again.
        """
        return bool(self.versions.items() & versions.items())


def of_revision(version: str) -> int:
    """The number of a Debian version's revision: it rises when the archive replaces the package.

    1.2-6 -> 6000, 1.2-6+deb12u8 -> 6008, 1.2-6.1 -> 6100, 1.2-7 -> 7000, 1.2-1~deb12u2 -> 902 (before 1.2-1)
    """
    _, dash, revision = version.rpartition("-")
    match = _REVISION.match(revision) if dash else None
    number = 1000 * int(match["revision"]) + 100 * int(match["nmu"] or 0) if match else 0
    update = _UPDATE.search(revision if dash else version)
    if update is not None:
        number += int(update["update"]) - (100 if update["sign"] == "~" and number >= 100 else 0)
    return number


def of_sources(sources: Iterable[LockedArtifact]) -> int:
    """The sum over the Debian packages of which a recipe uses something that changes with the revision;
    upstream's own tarball does not.
    """
    versions = {}
    for source in sources:
        revision = source.entry.version.rpartition("-")[2]
        if source.entry.kind != "python" and re.search(
            rf"[-_]{re.escape(revision)}[._]", source.fetched_name
        ):
            versions[source.entry.kind, source.entry.package] = source.entry.version
    return sum(map(of_revision, versions.values()))


def _path(layout: Layout) -> Path:
    return layout.recipes / "numbers.lock.yaml"


def read(layout: Layout) -> dict[str, LockedNumber]:
    """recipes/numbers.lock.yaml, checked; empty before the first release."""
    path = _path(layout)
    if not path.is_file():
        return {}
    try:
        document = yaml.safe_load(path.read_text()) or {}
        return {str(name): LockedNumber.model_validate(value) for name, value in document.items()}
    except (yaml.YAMLError, ValidationError, AttributeError) as error:
        raise WmlceError(
            "recipes/numbers.lock.yaml is damaged",
            detail=str(error).splitlines()[:12],
            remedy="restore it from git: without it, build numbers would start again",
        ) from error


def write(layout: Layout, numbers: Mapping[str, LockedNumber]) -> None:
    document = {name: numbers[name].model_dump() for name in sorted(numbers)}
    write_atomic(_path(layout), _HEAD + yaml.safe_dump(document, sort_keys=False, width=110))
