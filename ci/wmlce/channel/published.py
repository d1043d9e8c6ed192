"""The published channel build/channel: complete and indexed, or as it was before.

channel.json beside the packages records what was published: the digest of each package as it was built, and
of the earlier builds that the channel still has. Readers hold a lock while they solve and install, and a
publication waits for them, so that nobody loses files of the channel that he reads.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import zstandard
from rattler import Version
from rattler.index import index_fs
from rattler.package import IndexJson

from wmlce.builder.store import PackageFile
from wmlce.channel import conda_forge_overlay
from wmlce.util import platform
from wmlce.util.errors import WmlceError
from wmlce.util.files import disk_errors, link_or_copy, remove_tree, sha256_file, text_of, write_json
from wmlce.util.host import cpu_count
from wmlce.util.layout import Layout
from wmlce.util.locks import file_lock

Say = Callable[[str], None]
RUN_EXPORTS = "run_exports.json"
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


@dataclass(frozen=True)
class Earlier:
    """A build that another one has replaced.

    replaced: when, as ISO 8601
    indexed:  is it in the index? Those that a client would prefer to the current build are not; they can
    still be installed by a lock, which names files
    """

    sha256: str
    replaced: str
    indexed: bool


@dataclass
class Published:
    """channel.json.

    packages: `subdir/file` -> sha256 of the current builds, as they were built
    earlier:  likewise those that the channel still has of before
    """

    packages: dict[str, str] = field(default_factory=dict)
    earlier: dict[str, Earlier] = field(default_factory=dict)

    def sha256(self, key: str) -> str | None:
        """What is recorded of a file; None for one that was not published."""
        package = self.earlier.get(key)
        return package.sha256 if package else self.packages.get(key)

    def write(self, folder: Path) -> None:
        write_json(folder / "channel.json", asdict(self))


def read(folder: Path) -> Published:
    """What was published in `folder`; empty when there is no channel that wmlce published."""
    try:
        document = json.loads(text_of(folder / "channel.json"))
        return Published(
            {str(key): str(value) for key, value in document["packages"].items()},
            {str(key): Earlier(**value) for key, value in document.get("earlier", {}).items()},
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Published()


def _index_beside(layout: Layout, folder: Path) -> None:
    """Make and index the part of an indexed channel that is for users of conda-forge."""
    part = conda_forge_overlay.fill(layout, folder)
    if part is not None:
        index(part, entries(folder))
        part.chmod(0o755)


def contents(folder: Path) -> dict[str, str]:
    """`subdir/file` -> sha256 of the current builds; empty when there is no channel that wmlce published."""
    return read(folder).packages


def repodata(folder: Path) -> dict[str, dict[str, Any]]:
    """Subdir -> file -> entry of the channel's repodata."""
    documents: dict[str, dict[str, Any]] = {}
    for subdir in platform.SUBDIRS:
        path = folder / subdir / "repodata.json"
        if path.is_file():
            try:
                document = json.loads(text_of(path))
                documents[subdir] = {**document.get("packages", {}), **document.get("packages.conda", {})}
            except (ValueError, TypeError, AttributeError, RecursionError) as error:
                raise WmlceError(
                    f"{path} is not a channel index: {str(error)[:200]}",
                    remedy="rebuild the channel's index: wmlce channel index",
                ) from error
            for file, exported in _exports(path.with_name(RUN_EXPORTS)).items():
                if exported and file in documents[subdir]:
                    documents[subdir][file]["run_exports"] = exported
    return documents


def _exports(path: Path) -> dict[str, Any]:
    """What packages export, of a subdir's run_exports.json; empty where it has none."""
    if not path.is_file():
        return {}
    try:
        listed = json.loads(text_of(path)).get("packages.conda", {})
        return {str(file): item["run_exports"] for file, item in listed.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise WmlceError(
            f"{path} is no list of what packages export: {str(error)[:200]}",
            remedy="rebuild the channel's index: wmlce channel index",
        ) from error


def _separate_exports(folder: Path) -> None:
    """Move what packages export out of repodata.json, which has no such key, into run_exports.json, where
    conda-build and rattler-build look for it. The shards keep it: theirs is a form with that key.
    """
    for subdir in subdirs(folder):
        path = folder / subdir / "repodata.json"
        document = json.loads(path.read_text())
        exports: dict[str, dict[str, Any]] = {}
        for kind in ("packages", "packages.conda"):
            exports[kind] = {
                file: {"run_exports": entry.pop("run_exports", {})}
                for file, entry in document.get(kind, {}).items()
            }
        write_json(path.with_name(RUN_EXPORTS), {"info": {"subdir": subdir, "version": 1}, **exports})
        write_json(path, document)
        compressed = zstandard.ZstdCompressor(level=19).compress(path.read_bytes())
        path.with_name("repodata.json.zst").write_bytes(compressed)


def entries(folder: Path) -> dict[str, dict[str, Any]]:
    """`subdir/file` -> entry of a channel's repodata."""
    return {
        f"{subdir}/{name}": entry
        for subdir, listed in repodata(folder).items()
        for name, entry in listed.items()
    }


def is_channel(folder: Path) -> bool:
    """Has it an index that clients read?"""
    return any((folder / subdir / "repodata.json").is_file() for subdir in platform.SUBDIRS)


def subdirs(folder: Path) -> list[str]:
    """The folders of a channel: those of the platforms that it has, of this machine's while it has none, and
    that of all.
    """
    present = [subdir for subdir in platform.PLATFORMS if (folder / subdir).is_dir()]
    return [*(present or [platform.of_this_machine().subdir]), platform.NOARCH]


def _as_indexed(entry: Mapping[str, Any]) -> dict[str, Any]:
    """An entry as the index library writes it when it has read the file."""
    complete = {"indexed_timestamp": int(time.time() * 1000), **entry}
    return {key: value for key, value in complete.items() if key != "run_exports" or value}


def index(folder: Path, indexed: Mapping[str, Mapping[str, Any]]) -> None:
    """Write repodata.json, its zst form and shards for every subdir; all three, because clients choose
    among them.

    known: `subdir/file` -> entry in an index, of files whose bytes are known to be those; the others are
    read, which takes minutes for all of a channel
    """
    for subdir in subdirs(folder):
        (folder / subdir).mkdir(parents=True, exist_ok=True)
        entries = {
            path.name: _as_indexed(entry)
            for path in sorted((folder / subdir).glob("*.conda"))
            if (entry := indexed.get(f"{subdir}/{path.name}")) is not None
        }
        write_json(
            folder / subdir / "repodata.json",
            {"info": {"subdir": subdir}, "packages": {}, "packages.conda": entries, "repodata_version": 1},
        )
    try:
        # what is in repodata.json already is not read again
        asyncio.run(index_fs(folder, force=False, write_zst=True, write_shards=True))
    except OSError:
        raise
    except Exception as error:  # rattler's errors have no common type
        unreadable = [key for key, path in _files(folder).items() if _about(path) is None]
        raise WmlceError(
            f"the channel cannot be indexed: {', '.join(unreadable[:3]) or str(error).splitlines()[0]}"
            + (" cannot be read" if unreadable else ""),
            remedy="put the right files back: wmlce channel build",
        ) from error
    _separate_exports(folder)
    with suppress(OSError):
        (folder / ".tmp").rmdir()  # what the index library leaves is nothing to be served
    for path in folder.rglob("*"):
        # a channel is served to other users; the builder creates its files for the owner alone
        path.chmod(0o755 if path.is_dir() else 0o644)


@contextmanager
def building(layout: Layout, say: Say) -> Iterator[None]:
    """The lock of everything that makes a new build/channel: one run at a time, and from a whole channel."""
    with file_lock(layout.build / "locks" / "channel.lock", "building this clone's channel", say=say):
        _recover(layout, say)
        yield


def _readers(layout: Layout) -> Path:
    return layout.build / "locks" / "channel-readers.lock"


@contextmanager
def changing(layout: Layout, say: Say) -> Iterator[None]:
    """While inside, nobody reads build/channel: for the moment in which it is exchanged."""
    with file_lock(_readers(layout), "reading the channel", say=say):
        yield


@contextmanager
def reading(layout: Layout, folder: Path, say: Say) -> Iterator[None]:
    """While inside, `folder` is not exchanged if it is this clone's channel; other clones' and servers'
    channels are not ours to lock.
    """
    if folder != layout.channel:
        yield
        return
    _recover(layout, say)
    with file_lock(_readers(layout), "publishing the channel", say=say, shared=True):
        yield


def require(layout: Layout, folder: Path | None = None) -> Path:
    """The published channel (or another one), or an error that says what to run."""
    if folder is not None and folder != layout.channel:
        if not is_channel(folder):
            far = {"http:", "https:"} & {*folder.parts}
            raise WmlceError(
                f"{folder} is not a channel: it has no repodata.json",
                remedy="copy it here first: wmlce channel mirror DIR --from URL; then name DIR with --from"
                if far
                else "name another one with --from",
            )
        return folder
    if not is_channel(layout.channel):
        raise WmlceError(
            f"there is no channel in {layout.display(layout.channel)} yet",
            remedy="build it: wmlce channel build",
        )
    return layout.channel


def _cut_off(layout: Layout) -> Path:
    return layout.build / ".channel-old"


def _recover(layout: Layout, say: Say) -> None:
    """Finish or undo a publication that was killed between its two renames (file systems without an
    exchange).
    """
    old = _cut_off(layout)
    if not old.is_dir():
        return
    with changing(layout, say):
        if not old.is_dir():
            return  # another process was faster
        if layout.channel.exists():
            remove_tree(old)
        else:
            old.rename(layout.channel)


def publish(layout: Layout, packages: Iterable[PackageFile], built: Iterable[str], say: Say) -> bool:
    """Make `packages` the current ones of build/channel, beside the builds that it had before; False when
    that is what it already was. Only inside `building`.

    made: names of all packages that recipes make now; an earlier build of another one is the newest that
    there is
    """
    selected = {package.key: package for package in packages}
    old = read(layout.channel)
    new = Published({key: package.sha256 for key, package in selected.items()})
    now = datetime.now(UTC).isoformat(timespec="seconds")
    past = {key: Earlier(sha256, now, True) for key, sha256 in old.packages.items()} | old.earlier
    ranks = _Ranks(list(selected.values()), set(built))
    for key, earlier in past.items():
        if key not in selected and (path := layout.channel / key).is_file():
            new.earlier[key] = Earlier(earlier.sha256, earlier.replaced, ranks.below(path))
    whole = old == new and _whole(layout.channel, selected)
    if whole and conda_forge_overlay.is_current(layout, layout.channel):
        return False
    # earlier builders did not note what a package exports, without which an entry is not whole
    indexed = {key: package.entry for key, package in selected.items() if "run_exports" in package.entry}
    indexed |= entries(layout.channel)
    places = {key: package.path for key, package in selected.items()}
    places |= {key: layout.channel / key for key in new.earlier}
    _make(layout, new, places, say, indexed)
    gone = sorted(set(map(package_name, old.packages)) & set(built) - set(map(package_name, selected)))
    if gone:
        say(
            "no longer in the channel, as they were not built or tested with what it has now: "
            f"{_shown(gone)}; to have them again: wmlce channel build"
        )
    same = sorted({ranks.same[key] for key in new.earlier.keys() & ranks.same.keys() & old.packages.keys()})
    if same:
        say(
            f"changed, but not in version or build number: {_shown(same)}; before others install from this "
            "channel: wmlce lock numbers"
        )
    return True


def package_name(key: str) -> str:
    """The name of the package in `subdir/file`."""
    return key.rpartition("/")[2].rsplit("-", 2)[0]


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


class _Ranks:
    """Which earlier builds every client ranks below the current ones: by version, then by build number."""

    def __init__(self, current: Iterable[PackageFile], built: set[str]) -> None:
        self.built = built
        self.current: dict[str, list[tuple[Version, int]]] = {}
        for package in current:
            rank = (Version(str(package.entry["version"])), int(package.entry["build_number"]))
            self.current.setdefault(package.name, []).append(rank)
        self.same: dict[str, str] = {}
        """Earlier builds with the version and the build number of a current one: `subdir/file` -> name."""

    def below(self, path: Path) -> bool:
        """May the index hold this earlier build?"""
        about = _about(path)
        if about is None:
            return False  # a damaged file is no choice for anybody
        name, rank = about.name.normalized, (Version(str(about.version)), about.build_number)
        current = self.current.get(name)
        if current is None:
            return name not in self.built
        if rank in current:
            self.same[f"{path.parent.name}/{path.name}"] = name
        return all(rank < other for other in current)


def _about(path: Path) -> IndexJson | None:
    """What a package says of itself; None for a file that is none."""
    try:
        return IndexJson.from_package_archive(path)
    except Exception:  # rattler's errors have no common type
        return None


def _make(
    layout: Layout,
    new: Published,
    places: Mapping[str, Path],
    say: Say,
    entries: Mapping[str, Mapping[str, Any]],
) -> None:
    """Put a channel of these files in the place of build/channel. entries: of an index, as far as known."""
    with disk_errors("publishing the channel"):
        layout.build.mkdir(parents=True, exist_ok=True)
        for leftover in layout.build.glob(".channel-staging-*"):
            remove_tree(leftover)
        staging = Path(tempfile.mkdtemp(prefix=".channel-staging-", dir=layout.build))
        try:
            for key, path in places.items():
                if key not in new.earlier or new.earlier[key].indexed:
                    link_or_copy(path, staging / key)
            unchanged = _still_true(staging, entries)
            index(staging, unchanged)
            if _drop_damaged(staging, new, say):
                index(staging, unchanged)
            _index_beside(layout, staging)
            for key, earlier in new.earlier.items():
                if not earlier.indexed:
                    link_or_copy(places[key], staging / key)
            new.write(staging)
            staging.chmod(0o755)
            with changing(layout, say):
                _swap(staging, layout)
        finally:
            remove_tree(staging)


def _still_true(staging: Path, entries: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The entries whose files are here with the bytes that they tell of."""

    def true(item: tuple[str, Mapping[str, Any]]) -> bool:
        key, entry = item
        path = staging / key
        return path.is_file() and sha256_file(path) == entry.get("sha256")

    with ThreadPoolExecutor(cpu_count()) as pool:
        return {
            key: entry
            for (key, entry), valid in zip(entries.items(), pool.map(true, entries.items()), strict=True)
            if valid
        }


def _drop_damaged(staging: Path, new: Published, say: Say) -> bool:
    """The index was made of what the files hold: compare it with what was published. A damaged current
    package is an error; an earlier one is left out.
    """
    dropped = False
    for subdir, entries in repodata(staging).items():
        for name, entry in entries.items():
            key = f"{subdir}/{name}"
            recorded = new.sha256(key)
            if recorded in (None, entry["sha256"]):
                continue
            if key in new.packages:
                raise WmlceError(
                    f"{key} is not the package that was published: its sha256 differs",
                    detail=[f"published: {recorded}", f"found:     {entry['sha256']}"],
                    remedy="put the right one back: wmlce channel build",
                )
            say(f"{key}, an earlier build, is damaged: the channel continues without it")
            (staging / key).unlink()
            del new.earlier[key]
            dropped = True
    return dropped


def reindex(layout: Layout, say: Say) -> int:
    """Index build/channel anew as it stands, for packages that somebody put there by hand; returns the number
    of packages in the index.
    """
    with building(layout, say):
        folder = layout.channel
        if not folder.is_dir():
            raise WmlceError("there is no channel to index", remedy="build it: wmlce channel build")
        new = read(folder)
        places = _files(folder)
        new.earlier = {key: earlier for key, earlier in new.earlier.items() if key in places}
        _make(layout, new, places, say, {})
    return len(entries(folder))


def prune(layout: Layout, say: Say, *, keep: int = 0, older_than: timedelta | None = None) -> dict[str, int]:
    """Remove earlier builds; returns `subdir/file` -> size of what was removed.

    keep:       of each package so many of the latest ones stay
    older_than: only those that were replaced longer ago than this
    """
    with building(layout, say):
        folder = require(layout)
        new = read(folder)
        limit = (datetime.now(UTC) - older_than).isoformat(timespec="seconds") if older_than else None
        counts: dict[tuple[str, str], int] = {}
        removed: dict[str, int] = {}
        for key, earlier in sorted(new.earlier.items(), key=lambda item: item[1].replaced, reverse=True):
            package = (key.partition("/")[0], package_name(key))
            counts[package] = counts.get(package, 0) + 1
            if counts[package] > keep and (limit is None or earlier.replaced < limit):
                path = folder / key
                removed[key] = path.stat().st_size if path.is_file() else 0
        if removed:
            new.earlier = {key: earlier for key, earlier in new.earlier.items() if key not in removed}
            places = {key: path for key, path in _files(folder).items() if key not in removed}
            _make(layout, new, places, say, entries(folder))
    return removed


def _files(folder: Path) -> dict[str, Path]:
    """All packages that lie in a channel, by `subdir/file`."""
    paths = (path for subdir in platform.SUBDIRS for path in sorted((folder / subdir).glob("*.conda")))
    return {f"{path.parent.name}/{path.name}": path for path in paths}


def _whole(folder: Path, packages: Mapping[str, PackageFile]) -> bool:
    """Are all packages there with their content, indexed in every form? `wanted` are known to be right."""
    for subdir in subdirs(folder):
        for name in ("repodata.json", "repodata.json.zst", "repodata_shards.msgpack.zst", RUN_EXPORTS):
            if not (folder / subdir / name).is_file():
                return False
    listed = entries(folder)
    for key, package in packages.items():
        path = folder / key
        try:
            if not (path.samefile(package.path) or sha256_file(path) == package.sha256):
                return False
        except OSError:
            return False
        if listed.get(key, {}).get("sha256") != package.sha256:
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
    old = _cut_off(layout)
    remove_tree(old)
    target.rename(old)
    staging.rename(target)
    remove_tree(old)
