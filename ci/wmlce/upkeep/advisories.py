"""Advisories in OSV's format: which of them a version has, and so which ones a move closes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from wmlce.sources.suite import compare_versions
from wmlce.util.errors import WmlceError

_DEBIAN = {"bullseye": "Debian:11", "bookworm": "Debian:12", "trixie": "Debian:13"}
Compare = Callable[[str, str], int]


def ecosystem(suite: str | None) -> str:
    """What OSV calls the archive: PyPI, or a release of Debian."""
    return "PyPI" if suite is None else _DEBIAN.get(suite, f"Debian:{suite}")


def _compare_pypi(a: str, b: str) -> int:
    first, second = Version(a), Version(b)
    return (first > second) - (first < second)


@dataclass(frozen=True)
class Advisory:
    """One advisory on one package."""

    id: str
    summary: str
    ecosystem: str
    package: str
    versions: frozenset[str]
    ranges: tuple[tuple[Mapping[str, str], ...], ...]

    def affects(self, version: str) -> bool:
        """Is it about this version? In a range of events the last one that is not after it decides."""
        compare: Compare = _compare_pypi if self.ecosystem == "PyPI" else compare_versions
        if version in self.versions:
            return True
        return any(_within(version, events, compare) for events in self.ranges)


def _within(version: str, events: Sequence[Mapping[str, str]], compare: Compare) -> bool:
    inside = False
    points = [(str(value), kind) for event in events for kind, value in event.items()]
    for value, kind in points:
        try:
            order = 1 if value == "0" else compare(version, value)
        except InvalidVersion:
            continue
        if kind == "introduced" and order >= 0:
            inside = True
        elif (kind == "fixed" and order >= 0) or (kind == "last_affected" and order > 0):
            inside = False
    return inside


class Advisories:
    """Read the advisories of a file, or of all `.json` files in a folder."""

    def __init__(self, path: Path | None) -> None:
        self._by_package: dict[tuple[str, str], list[Advisory]] = {}
        if path is None:
            return
        files = sorted(path.rglob("*.json")) if path.is_dir() else [path]
        for file in files:
            for document in _documents(file):
                for item in _read(file, document):
                    self._by_package.setdefault((item.ecosystem, item.package), []).append(item)
        if not self._by_package:
            raise WmlceError(
                f"{path} has no advisory in OSV's format",
                remedy="unpack the database: one .json file for each advisory",
            )

    def of(self, package: str, suite: str | None, version: str) -> list[Advisory]:
        """The advisories on this version of a package; one of Python may be a build of an index of its own
        (2.13.0+cpu), which advisories do not tell apart.
        """
        name = package if suite else canonicalize_name(package)
        version = version if suite else version.partition("+")[0]
        candidates = self._by_package.get((ecosystem(suite), name), [])
        return [item for item in candidates if item.affects(version)]


def _documents(file: Path) -> list[Any]:
    try:
        document = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise WmlceError(f"{file} cannot be read: {error}", remedy="correct or remove it") from error
    return document if isinstance(document, list) else [document]


def _read(file: Path, document: Any) -> list[Advisory]:
    if not isinstance(document, dict) or "id" not in document:
        raise WmlceError(f"{file} is not an advisory in OSV's format: it has no id", remedy="remove it")
    if document.get("withdrawn"):
        return []
    advisories = []
    for affected in document.get("affected", []):
        package = affected.get("package", {})
        archive, name = str(package.get("ecosystem", "")), str(package.get("name", ""))
        ranges = tuple(
            tuple(part.get("events", ()))
            for part in affected.get("ranges", [])
            if part.get("type") == "ECOSYSTEM"
        )
        advisories.append(
            Advisory(
                str(document["id"]),
                str(document.get("summary", "")),
                archive,
                canonicalize_name(name) if archive == "PyPI" else name,
                frozenset(map(str, affected.get("versions", []))),
                ranges,
            )
        )
    return advisories
