"""Finished packages from one cache into another."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path


def copy(source: Path, target: Path, uid: int, gid: int, hashes: Mapping[str, str] | None = None) -> int:
    """Copy what `target` does not have of the finished recipes: the packages first, then the manifest that
    makes them known, so that a copy that was cut off is as if it had not begun.

    wanted: recipe -> content hash, of those to copy; None: all.

    Returns:
        The number of recipes.
    """
    copied = 0
    if hashes is None:
        manifests = sorted((source / "packages/finished").glob("*/*.json"))
    else:
        named = (source / "packages/finished" / name / f"{digest}.json" for name, digest in hashes.items())
        manifests = [manifest for manifest in named if manifest.is_file()]
    for manifest in manifests:
        place = target / manifest.relative_to(source)
        if place.exists():
            continue
        try:
            listed = [
                f"{item['subdir']}/{item['file']}" for item in json.loads(manifest.read_text())["packages"]
            ]
        except (ValueError, KeyError, TypeError):
            continue  # damaged: as if it were not built
        files = [source / "packages" / name for name in listed]
        if not all(file.is_file() for file in files):
            continue
        for file in [*files, manifest]:
            _copy(file, target / file.relative_to(source), uid, gid)
        copied += 1
    return copied


def _copy(file: Path, place: Path, uid: int, gid: int) -> None:
    _own_folders(place.parent, uid, gid)
    part = place.with_name(f".{place.name}.part-{os.getpid()}")
    try:
        shutil.copyfile(file, part)
        os.chown(part, uid, gid)
        part.rename(place)
    finally:
        part.unlink(missing_ok=True)


def _own_folders(folder: Path, uid: int, gid: int) -> None:
    """Make a folder and those above it that are missing."""
    if folder.exists():
        return
    _own_folders(folder.parent, uid, gid)
    folder.mkdir(exist_ok=True)
    os.chown(folder, uid, gid)
