"""The published channel build/channel: complete and indexed, or as it was before."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rattler.index import index_fs

from wmlce.builder.store import PackageFile
from wmlce.channel import beside
from wmlce.util.errors import WmlceError
from wmlce.util.files import disk_errors, link_or_copy, remove_tree, write_json
from wmlce.util.layout import Layout

SUBDIRS = ("linux-64", "noarch")
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def index(folder: Path) -> None:
    """Write repodata.json, its zst form and shards for every subdir; all three, because clients choose
    among them.
    """
    for subdir in SUBDIRS:
        (folder / subdir).mkdir(parents=True, exist_ok=True)
    asyncio.run(index_fs(folder, force=True, write_zst=True, write_shards=True))
    for path in folder.rglob("*"):
        # a channel is served to other users; the builder creates its files for the owner alone
        path.chmod(0o755 if path.is_dir() else 0o644)


def _index_all(layout: Layout, folder: Path) -> None:
    """`index` the channel and the part of it that is for users of conda-forge."""
    index(folder)
    part = beside.fill(layout, folder)
    if part is not None:
        index(part)
        part.chmod(0o755)


def contents(folder: Path) -> dict[str, str]:
    """`subdir/file` -> sha256 as published; empty when there is no channel that wmlce published."""
    try:
        listed = json.loads((folder / "channel.json").read_text())["packages"]
        return {str(key): str(value) for key, value in listed.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def repodata(folder: Path) -> dict[str, dict[str, Any]]:
    """Subdir -> file -> entry of the channel's repodata."""
    found: dict[str, dict[str, Any]] = {}
    for subdir in SUBDIRS:
        path = folder / subdir / "repodata.json"
        if path.is_file():
            document = json.loads(path.read_text())
            found[subdir] = {**document.get("packages", {}), **document.get("packages.conda", {})}
    return found


def require(layout: Layout) -> Path:
    """The published channel, or an error that says what to run."""
    recover(layout)
    if not any((layout.channel / subdir / "repodata.json").is_file() for subdir in SUBDIRS):
        raise WmlceError(
            f"there is no channel in {layout.shown(layout.channel)} yet",
            remedy="build it: wmlce channel build",
        )
    return layout.channel


def recover(layout: Layout) -> None:
    """Finish or undo a publication that was killed between its two renames (file systems without an
    exchange).
    """
    old = layout.build / ".channel-old"
    if old.is_dir():
        if layout.channel.exists():
            remove_tree(old)
        else:
            old.rename(layout.channel)


def publish(layout: Layout, packages: Iterable[PackageFile]) -> bool:
    """Make build/channel hold exactly `packages`; False when it already did."""
    recover(layout)
    wanted = {f"{package.subdir}/{package.file}": package for package in packages}
    listed = {key: package.sha256 for key, package in wanted.items()}
    same = contents(layout.channel) == listed
    if same and _whole(layout.channel, wanted) and beside.is_current(layout, layout.channel):
        return False
    with disk_errors("publishing the channel"):
        layout.build.mkdir(parents=True, exist_ok=True)
        for leftover in layout.build.glob(".channel-staging-*"):
            remove_tree(leftover)
        staging = Path(tempfile.mkdtemp(prefix=".channel-staging-", dir=layout.build))
        try:
            for key, package in wanted.items():
                link_or_copy(package.path, staging / key)
            _index_all(layout, staging)
            write_json(staging / "channel.json", {"packages": listed})
            staging.chmod(0o755)
            _swap(staging, layout)
        finally:
            remove_tree(staging)
    return True


def reindex(layout: Layout) -> int:
    """Index build/channel anew as it stands, for packages that somebody put there by hand; returns their
    number.
    """
    folder = require(layout) if layout.channel.is_dir() else layout.channel
    if not folder.is_dir():
        raise WmlceError("there is no channel to index", remedy="build it: wmlce channel build")
    staging = Path(tempfile.mkdtemp(prefix=".channel-staging-", dir=layout.build))
    with disk_errors("indexing the channel"):
        try:
            count = 0
            for subdir in SUBDIRS:
                for path in sorted((folder / subdir).glob("*.conda")):
                    link_or_copy(path, staging / subdir / path.name)
                    count += 1
            _index_all(layout, staging)
            if (folder / "channel.json").is_file():
                shutil.copy2(folder / "channel.json", staging / "channel.json")
            staging.chmod(0o755)
            _swap(staging, layout)
        finally:
            remove_tree(staging)
    return count


def _whole(folder: Path, wanted: dict[str, PackageFile]) -> bool:
    """Are all files there with their sizes, indexed in every form?"""
    for subdir in SUBDIRS:
        for name in ("repodata.json", "repodata.json.zst", "repodata_shards.msgpack.zst"):
            if not (folder / subdir / name).is_file():
                return False
    for key, package in wanted.items():
        try:
            if (folder / key).stat().st_size != package.size:
                return False
        except OSError:
            return False
    return True


def _swap(staging: Path, layout: Layout) -> None:
    """Put the staged channel in the published one's place; readers see one or the other."""
    target = layout.channel
    if not target.exists():
        staging.rename(target)
        return
    libc = ctypes.CDLL(None, use_errno=True)
    exchange = getattr(libc, "renameat2", None)
    if exchange is not None and (
        exchange(_AT_FDCWD, os.fsencode(staging), _AT_FDCWD, os.fsencode(target), _RENAME_EXCHANGE) == 0
    ):
        return
    old = layout.build / ".channel-old"
    remove_tree(old)
    target.rename(old)
    staging.rename(target)
    remove_tree(old)
