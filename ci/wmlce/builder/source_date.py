"""The date of what a package is made of: $SOURCE_DATE_EPOCH of its build, and the `timestamp` of the package.

It says when the sources were made and not when they were built, so that the same content has the same date
wherever and whenever it is built; a renewed source or requirement brings a later one.
"""

from __future__ import annotations

import calendar
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

FIRST = 315_532_800
"""1980-01-01, the first date that a zip archive can hold: of packages that are made of nothing dated."""
LAST = 0xFFFF_FFFF
"""Compiled Python modules hold a date of 32 bits."""


def of_archive(path: Path) -> int:
    """The newest date inside a source archive; FIRST for a file that is none."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            # a zip's dates have no time zone
            return _newest(calendar.timegm((*member.date_time, 0, 0, 0)) for member in archive.infolist())
    if path.suffix == ".deb":  # an ar archive, whose header has the date of its package
        with path.open("rb") as stream:
            head = stream.read(8 + 28)
        return _newest([int(head[24:36])] if head[24:36].strip().isdigit() else [])
    try:
        with tarfile.open(path, "r|*") as archive:
            return _newest(int(member.mtime) for member in archive)
    except tarfile.TarError:
        return FIRST


def _newest(dates: Iterable[int]) -> int:
    return min(max((FIRST, *dates)), LAST)


def of_package(archives: Iterable[Path], timestamps: Iterable[int]) -> int:
    """The date of a package made of these archives, with packages of these timestamps (in milliseconds)."""
    dates = [*(of_archive(path) for path in archives), *(stamp // 1000 for stamp in timestamps)]
    return _newest(dates)
