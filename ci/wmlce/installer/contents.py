"""What the packages of an installer ask of the system that they are installed on."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version
from rattler.package.paths_json import PathsEntry, PathsJson
from rattler.repo_data.record import RepoDataRecord

from wmlce.util.errors import WmlceError

_GLIBC = re.compile(r"__glibc\s*>=\s*([0-9]+(?:\.[0-9]+)*)")
_BLOCK = 4096
_LONGEST_PREFIX = 255


@dataclass(frozen=True)
class Needs:
    """installed: bytes on a disk of 4 KiB blocks. prefix_limit: the longest path in bytes that binary files
    have room for. files: their number.
    """

    installed: int
    prefix_limit: int
    files: int


def glibc(records: Iterable[RepoDataRecord]) -> Version:
    """The oldest glibc that all packages allow."""
    required = [match[1] for record in records for text in record.depends if (match := _GLIBC.match(text))]
    return max(map(Version, required), default=Version("0"))


def measure(packages: Iterable[tuple[RepoDataRecord, Path]]) -> Needs:
    """Read what the packages themselves list."""
    installed = files = 0
    limit = _LONGEST_PREFIX
    for record, path in packages:
        for entry in _paths(path):
            size = entry.size_in_bytes or 0
            blocks = -(-size // _BLOCK) * _BLOCK
            installed += blocks
            files += 1
            if record.noarch.python and str(entry.relative_path).endswith(".py"):
                installed += blocks  # compiled on the target, to about the same size
            placeholder = entry.prefix_placeholder
            if placeholder is not None and placeholder.file_mode.binary:
                limit = min(limit, len(placeholder.placeholder.encode()))
    return Needs(installed, limit, files)


def _paths(package: Path) -> list[PathsEntry]:
    try:
        return PathsJson.from_package_archive(package).paths
    except Exception as error:  # what py-rattler raises has no common type
        raise WmlceError(
            f"{package} is not a package that can be read",
            detail=str(error).splitlines()[:4],
            remedy="build the package again: wmlce channel build --force NAME",
        ) from error
