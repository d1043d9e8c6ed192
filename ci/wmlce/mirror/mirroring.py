"""`wmlce channel mirror`: a copy of a channel in another folder, out of a folder or from a web server.

Files come first, each under its name only when its sha256 is right; the index comes last. While it is
exchanged, one that lists both the old and the new packages stands in, so whoever reads it at any moment, also
after the command was killed, finds all that an old or a new package needs.

Of a signed channel the signature is checked before anything else, and index and signature are copied as they
are. Another channel, or some packages of one, can be signed by who mirrors it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

from wmlce import __version__
from wmlce.channel import conda_forge_overlay, published
from wmlce.mirror import signed as signed_origin
from wmlce.mirror.origin import TRIES, Origin, pause_s
from wmlce.mirror.signed import Signed
from wmlce.recipes.licenses import PROPRIETARY
from wmlce.recipes.model import package_name
from wmlce.release import check, freshness, manifest, signature, trust
from wmlce.release.freshness import Statement
from wmlce.util import platform
from wmlce.util.errors import WmlceError
from wmlce.util.files import disk_errors, for_others, link_or_copy, remove_tree, scratch_beside, sha256_file
from wmlce.util.layout import Layout
from wmlce.util.locks import file_lock

_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+!-]{0,200}\.conda")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_BLOCK = 1 << 18
_AT_ONCE = 4
_INDEX_FORMS = (published.RUN_EXPORTS, "repodata_shards.msgpack.zst", "repodata.json.zst", "repodata.json")
_MADE = re.compile(
    r"(?:[a-z0-9-]+/){0,2}"
    r"(?:shards/[^/]+|repodata[^/]*|(?:channel|run_exports|signed)\.json|SHA256SUMS(?:\.sig)?)"
)
"""Files that a mirror makes, beside the packages."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Item:
    """A package of the channel: its key is `subdir/file`, entry what the index says of it."""

    key: str
    entry: Mapping[str, Any]

    @property
    def size(self) -> int:
        return int(self.entry["size"])

    @property
    def sha256(self) -> str:
        return str(self.entry["sha256"])

    @property
    def restricted(self) -> bool:
        return str(self.entry.get("license_family") or "").upper() == PROPRIETARY


@dataclass
class Mirrored:
    """What was done, or with a dry run would be.

    items: all packages that the mirror has at the end. fetch: those of them that it had not
    restricted: left out, because their licences do not allow passing them on. pruned: removed keys
    signed: whose signature the mirror has, and whether it was one of trusted keys. absent: packages that the
    signed index lists and the mirror has not
    """

    items: list[Item] = field(default_factory=list)
    fetch: list[Item] = field(default_factory=list)
    restricted: list[Item] = field(default_factory=list)
    pruned: list[str] = field(default_factory=list)
    key: str | None = None
    trusted: bool = False
    statement: Statement | None = None
    absent: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "packages": len(self.items),
            "bytes": sum(item.size for item in self.items),
            "fetch": {item.key: item.size for item in self.fetch},
            "restricted": {item.key: item.size for item in self.restricted},
            "pruned": self.pruned,
            "key": self.key,
            "trusted": self.trusted,
            "version": self.statement.version if self.statement else None,
            "absent": self.absent,
        }


def mirror(
    layout: Layout,
    target: Path,
    say: Say,
    *,
    source: str | None = None,
    packages: Sequence[str] = (),
    include_restricted: bool = False,
    prune: bool = False,
    dry_run: bool = False,
    key: Path | None = None,
) -> Mirrored:
    """Make `target` hold the packages of a channel, or those of `packages` with all that they may need.

    key: to sign the mirror with, which then has an index of its own
    """
    target = target.expanduser().absolute()
    if target.exists() and not target.is_dir():
        raise WmlceError(f"{target} is not a folder", remedy="name a folder; it is made if it does not exist")
    folder = layout.channel if source is None else Origin(source).folder
    if source is None:
        published.require(layout)
    if folder is not None and (folder.resolve() == target.resolve() or target.is_relative_to(folder)):
        raise WmlceError(f"{target} is the channel itself", remedy="name another folder for the mirror")
    origin = Origin(source or str(layout.channel))
    if key is not None and not key.is_file():
        raise WmlceError(f"there is no key {key}", remedy=f"make one: wmlce release key new {key}")
    with published.reading(layout, folder or target, say):
        original = _original(layout, origin, say)
        verbatim = original if key is None else None
        if verbatim is not None or key is None:
            _compare_with_target(target, verbatim, origin)
        if dry_run:
            return _plan(origin, target, packages, include_restricted, original, verbatim)
        with for_others(), file_lock(target / ".mirror.lock", f"mirroring into {target}", say=say):
            with disk_errors(f"mirroring into {target}"), scratch_beside(target / "signed") as scratch:
                done = _plan(origin, target, packages, include_restricted, original, verbatim)
                _require_space(target, done.fetch)
                if verbatim is not None:
                    signed_origin.fetch(origin, verbatim, target, scratch, say)
                _fetch_all(origin, target, done.fetch, say)
                if verbatim is not None:
                    _publish_signed(target, done, verbatim, scratch, say)
                else:
                    _publish(origin, target, done, say)
                if prune:
                    done.pruned = _prune(target, {item.key for item in done.items})
                if key is not None:
                    _sign(layout, target, done, original, key, say)
            return done


def _original(layout: Layout, origin: Origin, say: Say) -> Signed | None:
    """The origin's signature, checked: an error where one is wanted and it has none, or an old one."""
    trusted = trust.required()
    original = signed_origin.read(origin, trusted)
    if original is None:
        folder = origin.folder
        if trusted is None:
            mine = folder is not None and trust.is_built_here(folder, layout.channel)
            trust.check_unsigned(origin.title, mine=mine)
        elif folder is None or not trust.lets_through(folder, layout.channel):
            raise trust.unsigned(origin.title)
        return None
    if trusted is not None:
        freshness.accept(original.statement, origin.title, f"the channel {origin.title}")
    else:
        freshness.check(original.statement, f"the channel {origin.title}")
        say(
            f"signed by the key {original.key}, which was not compared with trusted keys: "
            "--require-signature FILE"
        )
    return original


def _compare_with_target(target: Path, verbatim: Signed | None, origin: Origin) -> None:
    """An error where the mirror has something newer, or a signature that it would lose."""
    if not (target / signed_origin.SIGNATURE).is_file():
        return
    if verbatim is None:
        raise WmlceError(
            f"{target} is a signed mirror, and {origin.title} is not signed",
            remedy="see that this is the right channel; then sign the mirror yourself (--key FILE), or name "
            "another folder",
        )
    freshness.compare(verbatim.statement, freshness.read(target), f"the channel {origin.title}")


def _plan(
    origin: Origin,
    target: Path,
    packages: Sequence[str],
    include_restricted: bool,
    original: Signed | None,
    verbatim: Signed | None,
) -> Mirrored:
    packages_offered = list(_offered(origin, original))
    number = len(packages_offered)
    if packages:
        packages_offered = _needed(packages_offered, packages, origin)
    plan = Mirrored()
    for item in packages_offered:
        if item.restricted and not include_restricted:
            plan.restricted.append(item)
        else:
            plan.items.append(item)
    plan.fetch = [item for item in plan.items if not _here(target / item.key, item)]
    if verbatim is not None:
        plan.key, plan.trusted, plan.statement = verbatim.key, verbatim.trusted, verbatim.statement
        plan.absent = number - len(plan.items)
    return plan


def _offered(origin: Origin, original: Signed | None) -> Iterator[Item]:
    """What the channel's index lists, checked: its names become names of files here."""
    any_index = False
    for subdir in platform.SUBDIRS:
        place = f"{subdir}/repodata.json"
        data = origin.read(place)
        if original is not None:
            data = original.checked(place, data, origin.title)
        if data is None:
            continue
        any_index = True
        entries = _packages_of(data, f"{origin.title}/{place}")
        exports_place = f"{subdir}/{published.RUN_EXPORTS}"
        exports_data = origin.read(exports_place)
        if original is not None:
            exports_data = original.checked(exports_place, exports_data, origin.title)
        exports = _packages_of(exports_data, f"{origin.title}/{exports_place}") if exports_data else {}
        for file, entry in sorted(entries.items()):
            whole = (
                _FILE.fullmatch(file)
                and isinstance(entry, dict)
                and _DIGEST.fullmatch(str(entry.get("sha256")))
                and isinstance(entry.get("size"), int)
                and entry["size"] > 0
                and isinstance(entry.get("name"), str)
                and isinstance(entry.get("depends", []), list)
                and all(isinstance(spec, str) for spec in entry.get("depends", []))
            )
            if not whole:
                raise WmlceError(
                    f"{origin.title}/{subdir}/repodata.json: the entry {file[:80]!r} has no name, size and "
                    "sha256 as a package of a channel has them",
                    remedy="rebuild the channel's index: wmlce channel index",
                )
            if original is not None and original.listed.get(f"{subdir}/{file}") != entry["sha256"]:
                raise signed_origin.differs(origin.title, f"{subdir}/{file}", "another sha256 in the index")
            if file in exports:
                entry = {
                    **entry,
                    "run_exports": _run_exports(exports[file], f"{origin.title}/{exports_place}", file),
                }
            yield Item(f"{subdir}/{file}", entry)
    if not any_index:
        raise WmlceError(
            f"{origin.title} is not a channel: no repodata.json in any of {', '.join(platform.SUBDIRS)}",
            remedy="name the folder or address that holds the folders of platforms and noarch",
        )


def _packages_of(data: bytes, title: str) -> dict[str, Any]:
    """What a file of an index says of each package."""
    try:
        packages = json.loads(data)["packages.conda"]
        if not isinstance(packages, dict):
            raise TypeError("packages.conda is no table of packages")
        return packages
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise WmlceError(
            f"{title} is not a channel index: {str(error)[:200]}",
            remedy="rebuild the channel's index: wmlce channel index",
        ) from error


def _run_exports(listed: object, title: str, file: str) -> dict[str, list[str]]:
    """What a package exports, checked: kind -> match specs."""
    exported = listed.get("run_exports") if isinstance(listed, dict) else None
    whole = isinstance(exported, dict) and all(
        isinstance(specs, list) and all(isinstance(spec, str) for spec in specs)
        for specs in exported.values()
    )
    if not isinstance(exported, dict) or not whole:
        raise WmlceError(
            f"{title}: what {file[:80]!r} exports is no list of packages for each kind",
            remedy="rebuild the channel's index: wmlce channel index",
        )
    return exported


def _needed(items: Iterable[Item], packages: Sequence[str], origin: Origin) -> list[Item]:
    """The named packages in every version, and all that these may need."""
    by_name: dict[str, list[Item]] = {}
    for item in items:
        by_name.setdefault(item.entry["name"], []).append(item)
    unknown = sorted(set(packages) - by_name.keys())
    if unknown:
        raise WmlceError(
            f"{origin.title} has no package {', '.join(unknown)}", remedy="correct the names in --packages"
        )
    todo, needed = list(packages), set[str]()
    while todo:
        name = todo.pop()
        if name in needed:
            continue
        needed.add(name)
        for item in by_name.get(name, []):
            todo += [package_name(spec) for spec in item.entry.get("depends", [])]
    return [item for name in sorted(needed & by_name.keys()) for item in by_name[name]]


def _here(path: Path, item: Item) -> bool:
    return path.is_file() and path.stat().st_size == item.size and sha256_file(path) == item.sha256


def _part(target: Path, item: Item) -> Path:
    subdir, file = item.key.split("/")
    return target / subdir / f".{file}.{item.sha256[:16]}.part"


def _require_space(target: Path, items: Iterable[Item]) -> None:
    """Better an error at the start than after an hour."""
    needed = 0
    for item in items:
        part = _part(target, item)
        needed += max(0, item.size - (part.stat().st_size if part.is_file() else 0))
    free = shutil.disk_usage(target).free
    if needed > free:
        raise WmlceError(
            f"no space left for the mirror: {needed / 1e6:.0f} MB are to be fetched, and {target} has "
            f"{free / 1e6:.0f} MB",
            remedy="free some space, or mirror less: --packages NAME",
        )


def _fetch_all(origin: Origin, target: Path, items: Sequence[Item], say: Say) -> None:
    if not items:
        return
    total = sum(item.size for item in items)
    say(f"fetching {len(items)} packages, {total / 1e6:.1f} MB, from {origin.title}")
    stop = threading.Event()
    last_report, arrived, lock = time.monotonic(), 0, threading.Lock()

    def work(item: Item) -> None:
        nonlocal last_report, arrived
        if stop.is_set():
            return
        try:
            _fetch(origin, target, item, stop, say)
        except BaseException:
            stop.set()
            raise
        with lock:
            arrived += item.size
            if time.monotonic() - last_report > 15:
                last_report = time.monotonic()
                say(f"{arrived / 1e6:.0f} of {total / 1e6:.0f} MB are here")

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            for future in futures:
                future.result()
        finally:
            stop.set()


def _fetch(origin: Origin, target: Path, item: Item, stop: threading.Event, say: Say) -> None:
    """One file into its place; what has arrived of it stays for the next try and the next run."""
    part, path = _part(target, item), target / item.key
    path.parent.mkdir(parents=True, exist_ok=True)
    last: Exception | None = None
    wrong = 0
    for attempt in range(TRIES):
        if attempt:
            stop.wait(pause_s(attempt))
        if stop.is_set():
            return
        try:
            _receive(origin, item, part, stop)
        except (FileNotFoundError, HTTPError) as error:
            last = error
            if isinstance(error, FileNotFoundError) or error.code in (404, 410):
                raise WmlceError(
                    f"{origin.title} lists {item.key} and does not have it",
                    remedy="if the channel was changed meanwhile, run the command again; if not, index it "
                    "anew: wmlce channel index",
                ) from error
            if error.code == 416:  # the part is no beginning of that file
                part.unlink(missing_ok=True)
            continue
        except (URLError, HTTPException, TimeoutError, ConnectionError) as error:
            last = error
            continue
        size = part.stat().st_size
        if stop.is_set() and size < item.size:
            return
        if size < item.size:
            last = EOFError(f"it ends after {size} of {item.size} bytes")
            continue
        if size == item.size and sha256_file(part) == item.sha256:
            with part.open("rb") as stream:
                os.fsync(stream.fileno())
            part.chmod(0o644)
            os.replace(part, path)
            return
        # of an earlier run, a part may be of another file: once from its beginning, then it is the source
        part.unlink()
        wrong += 1
        last = ValueError("its content has not the sha256 of the index")
        if wrong == 2:
            break
        say(f"{item.key}: the content is not that of the index; fetching it from its beginning")
    raise WmlceError(
        f"{item.key} cannot be fetched from {origin.title}: {last}",
        remedy="run the command again to resume; if it stays, the channel's file is damaged: "
        "there, run `wmlce channel verify`",
    ) from last


def _receive(origin: Origin, item: Item, part: Path, stop: threading.Event) -> None:
    offset = part.stat().st_size if part.is_file() else 0
    if offset == item.size:
        return
    if offset > item.size:
        part.unlink()
        offset = 0
    stream, begins = origin.open(item.key, offset)
    with closing(stream), part.open("ab") as out:
        if begins != offset:
            if begins != 0:
                raise HTTPException("the server sent another part of the file than was asked for")
            out.truncate(0)
            offset = 0
        while not stop.is_set() and (block := stream.read(_BLOCK)):
            offset += len(block)
            if offset > item.size:
                part.unlink()  # the beginning of something else
                raise HTTPException(f"the file is longer than the {item.size} bytes of the index")
            out.write(block)


def _publish(origin: Origin, target: Path, done: Mirrored, say: Say) -> None:
    """Put the new index in the old one's place, by way of one that lists both."""
    new = {item.key: item.entry for item in done.items}
    old = published.entries(target)
    both = {**{key: entry for key, entry in old.items() if (target / key).is_file()}, **new}
    if old and both.keys() not in (old.keys(), new.keys()):
        _exchange(target, both, say)
    _exchange(target, new, say)
    _beside(origin, target, new, say)
    _record(origin, target, new)


def _publish_signed(target: Path, done: Mirrored, signed: Signed, scratch: Path, say: Say) -> None:
    """Put the signed files in their places as they are, by way of an index that lists old and new packages,
    and take away what an older release left of its own.
    """
    new = {item.key: item.entry for item in done.items}
    old = published.entries(target)
    both = {**{key: entry for key, entry in old.items() if (target / key).is_file()}, **new}
    if old and both.keys() not in (old.keys(), new.keys()):
        _exchange(target, both, say)
    part = conda_forge_overlay.FOLDER
    for key in new:
        if f"{part}/{key}" in signed.listed:
            link_or_copy(target / key, target / part / key)
    ranks = {form: number for number, form in enumerate(_INDEX_FORMS, 1)}
    ranks |= {manifest.NAME: len(ranks) + 1, signed_origin.SIGNATURE: len(ranks) + 2}
    for name in sorted([*signed.others, *signed.lists], key=lambda name: ranks.get(Path(name).name, 0)):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        os.replace(scratch / name, target / name)
    for name in signed_origin.strange(signed, manifest.everything(target)):
        if _MADE.fullmatch(name):
            (target / name).unlink()
    wrong = manifest.differences(target, signed.listed, concerns=lambda name: not name.endswith(".conda"))
    if wrong:
        raise WmlceError(
            f"{target} has files that were not signed, and does not pass as signed: {wrong[0]}",
            detail=wrong[1:6],
            remedy="move them elsewhere, and run the command again",
        )


def _sign(layout: Layout, target: Path, done: Mirrored, original: Signed | None, key: Path, say: Say) -> None:
    """Sign a mirror that has an index of its own, and the part of it for users of conda-forge."""
    original_statement = original.statement if original is not None else None
    if original_statement is not None:
        version, expires = original_statement.version, original_statement.expires
    else:
        file = layout.root / "VERSION"
        version, expires = file.read_text().strip() if file.is_file() else __version__, None
    done.statement = Statement(str(target), version, datetime.now(UTC), expires)
    digests = {item.key: item.sha256 for item in done.items}
    part = target / conda_forge_overlay.FOLDER
    inner = {name: digest for name, digest in digests.items() if (part / name).is_file()}
    for folder, content in ((part, inner), (target, digests)):
        if folder.is_dir():
            replace(done.statement, name=str(folder)).write(folder / freshness.NAME)
            signature.signature_of(folder / manifest.NAME).unlink(missing_ok=True)
            manifest.write(folder, content)
    say(f"signing with {key}")
    done.key = signature.sign(check.to_sign(target), key)
    if (trusted := trust.required()) is not None:
        signature.verify(target / manifest.NAME, trusted)
        done.trusted = True


def _exchange(target: Path, entries: Mapping[str, Mapping[str, Any]], say: Say) -> None:
    """Write an index of these packages of `target`, each of its files by a rename."""
    say(f"indexing {len(entries)} packages")
    with scratch_beside(target / "index") as scratch:
        for key in entries:
            link_or_copy(target / key, scratch / key)
        for subdir in platform.SUBDIRS:
            if (target / subdir).is_dir():  # of a platform that is no longer offered: an empty index
                (scratch / subdir).mkdir(exist_ok=True)
        published.index(scratch, entries)
        for subdir in published.subdirs(scratch):
            place, staged = target / subdir, scratch / subdir
            place.mkdir(exist_ok=True)
            # shards are named by their content: new ones disturb nobody, and the list of them comes after
            for shard in sorted((staged / "shards").glob("*")):
                (place / "shards").mkdir(exist_ok=True)
                os.replace(shard, place / "shards" / shard.name)
        for form in _INDEX_FORMS:
            for subdir in published.subdirs(scratch):
                os.replace(scratch / subdir / form, target / subdir / form)


def _beside(origin: Origin, target: Path, new: Mapping[str, Mapping[str, Any]], say: Say) -> None:
    """The part for users of conda-forge, if the channel has one: links to the same files."""
    part = target / conda_forge_overlay.FOLDER
    selected: dict[str, Mapping[str, Any]] = {}
    for subdir in platform.SUBDIRS:
        place = f"{conda_forge_overlay.FOLDER}/{subdir}/repodata.json"
        data = origin.read(place)
        for file in _packages_of(data, f"{origin.title}/{place}") if data is not None else ():
            if (key := f"{subdir}/{file}") in new:
                selected[key] = new[key]
    if selected:
        for key in selected:
            link_or_copy(target / key, part / key)
        _exchange(part, selected, say)
    elif part.exists():
        remove_tree(part)


def _record(origin: Origin, target: Path, new: Mapping[str, Mapping[str, Any]]) -> None:
    """channel.json: which of the packages are current and which earlier, as the channel says it."""
    data = origin.read("channel.json")
    try:
        earlier = dict(json.loads(data).get("earlier", {})) if data else {}
        past = {key: published.Earlier(**value) for key, value in earlier.items() if key in new}
    except (ValueError, TypeError, AttributeError, RecursionError):
        past = {}
    current = {key: str(entry["sha256"]) for key, entry in new.items() if key not in past}
    published.Published(current, past).write(target)


def _prune(target: Path, current: set[str]) -> list[str]:
    """Remove packages that the mirror no longer lists, and what was left of interrupted runs."""
    removed = []
    for folder in (target, target / conda_forge_overlay.FOLDER):
        for subdir in platform.SUBDIRS:
            for path in sorted((folder / subdir).glob("*.conda")):
                if f"{subdir}/{path.name}" not in current:
                    path.unlink()
                    removed.append(str(path.relative_to(target)))
            for path in (folder / subdir).glob(".*.part"):
                path.unlink()
    return removed
