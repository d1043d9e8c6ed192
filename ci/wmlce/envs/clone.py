"""A copy of an environment in another place, made from the environment itself: no channel, no package cache,
no conda. What the packages had written about the old place says the new one afterwards.

Uses only the standard library: it also runs inside installed environments.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from wmlce.util import conda_meta
from wmlce.util.errors import WmlceError
from wmlce.util.files import disk_errors, for_others, remove_tree, text_of, write_json

MARKER = "conda-meta/.wmlce-complete"
RECORD = "share/ibm-wml-ce/module.json"
_FICLONE = 0x40049409
_NO_REFLINK = (errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EPERM)
# What may not follow a prefix that is meant: /sw/a is not to be found in /sw/ab.
_BOUNDARY = rb"(?![A-Za-z0-9_.+-])"
# The kernel reads no more of a script's first line than this.
_SHEBANG_LIMIT = 127
# Open MPI, shebang lines and configuration files take a path up to one of these as a whole one, or shells of
# people who paste the path take it for more. ci/bootstrap.sh and the installer refuse the same ones.
UNFIT = re.compile(r"[\s\x00-\x1f\x7f:;,'\"$`\\#%*?&()|<>\[\]{}!^=]")
LONGEST = 255
"""Bytes of a path that packages have room for in their binary files."""


@dataclass(frozen=True)
class CloneResult:
    """files: of the clone. shared: those that cost no space (reflinks and hard links). rewritten: those that
    name the new place.
    """

    files: int
    shared: int
    rewritten: int


@dataclass
class _Owned:
    """What the packages' records say about an environment's files."""

    packaged: set[str] = field(default_factory=set)
    placeholders: dict[str, int] = field(default_factory=dict)
    """Files with the prefix in them, and the room in bytes that a binary one has for it."""


def check_target(target: Path, product: str = "an environment") -> None:
    """Refuse a path that programs inside an environment could not cope with."""
    if match := UNFIT.search(str(target)):
        raise WmlceError(
            f"{product} cannot lie in {target}: programs cannot cope with {match.group()!r} in paths",
            remedy="choose a path of letters, digits and '/', '.', '_', '-', '+'",
        )
    if len(os.fsencode(target)) > LONGEST:
        raise WmlceError(
            f"the path {target} is too long for {product}: packages have room for {LONGEST} bytes",
            remedy="choose a shorter path",
        )


def clone(source: Path, target: Path, *, say: Callable[[str], None], copy: bool = False) -> CloneResult:
    """Make `target` an environment like `source`; it is complete or absent. `copy`: share no file's storage
    with the source by hard links.
    """
    source, target = Path(os.path.abspath(source)), Path(os.path.abspath(target))
    if not (source / "conda-meta").is_dir():
        raise WmlceError(
            f"{source} is not an environment: it has no folder conda-meta",
            remedy="name the prefix of an environment; `wmlce env list` shows those of this clone",
        )
    check_target(target)
    if target.is_relative_to(source):
        raise WmlceError(f"{target} lies inside {source}", remedy="choose a place outside the environment")
    if target.exists() or target.is_symlink():
        raise WmlceError(f"{target} exists already", remedy="remove it first, or choose another name")
    with disk_errors(f"cloning {source} to {target}"), for_others():
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}.part-", dir=target.parent))
        try:
            say(f"cloning {source}")
            result = _fill(source, scratch, target, copy)
            _mark(source, scratch, target)
            os.chmod(scratch, 0o755)
            os.rename(scratch, target)
        except BaseException:
            remove_tree(scratch)
            raise
    return result


def _fill(source: Path, scratch: Path, target: Path, copy: bool) -> CloneResult:
    owned = _read_records(source)
    old, new = os.fsencode(source), os.fsencode(target)
    files = shared = 0
    rewritten: dict[str, str] = {}
    for folder, folders, names in os.walk(source):
        current = Path(folder)
        relative = current.relative_to(source)
        for name in [*folders, *names]:
            path, place = current / name, scratch / relative / name
            mode = path.lstat().st_mode
            inside = str(relative / name)
            if stat.S_ISLNK(mode):
                place.symlink_to(_moved_link(os.readlink(path), str(source), str(target)))
            elif stat.S_ISDIR(mode):
                place.mkdir(mode=0o755)
            elif inside == RECORD or not stat.S_ISREG(mode):
                continue  # a clone is no module of the site's; sockets and the like are nobody's content
            else:
                files += 1
                if _may_name_the_prefix(inside, owned) and old in (content := path.read_bytes()):
                    moved = _moved_content(content, old, new, owned.placeholders.get(inside), inside)
                    place.write_bytes(moved)
                    _copy_metadata(path, place)
                    rewritten[inside] = hashlib.sha256(moved).hexdigest()
                else:
                    shared += _share_or_copy(path, place, copy)
    _record_digests(scratch, rewritten)
    return CloneResult(files, shared, len(rewritten))


def _read_records(prefix: Path) -> _Owned:
    owned = _Owned()
    for record in conda_meta.all_of(prefix).values():
        for entry in record["paths_data"]["paths"]:
            owned.packaged.add(entry["_path"])
            if entry.get("prefix_placeholder"):
                owned.placeholders[entry["_path"]] = len(entry["prefix_placeholder"].encode())
            elif entry.get("path_type") == "unix_python_entry_point":
                owned.packaged.discard(entry["_path"])
    return owned


def _record_digests(prefix: Path, rewritten: dict[str, str]) -> None:
    """The records tell of the files as they are here: `conda doctor` compares."""
    for path, record in conda_meta.all_of(prefix).items():
        changed = [
            entry
            for entry in record["paths_data"]["paths"]
            if entry["_path"] in rewritten and entry.get("sha256_in_prefix")
        ]
        for entry in changed:
            entry["sha256_in_prefix"] = rewritten[entry["_path"]]
        if changed:
            mode = stat.S_IMODE(path.stat().st_mode)
            path.unlink()  # the source's own may be the same file
            path.write_text(json.dumps(record, indent=2) + "\n")
            path.chmod(mode)


def _may_name_the_prefix(path: str, owned: _Owned) -> bool:
    """Packages say which of their files do; what pip and people have added is looked into."""
    if path.endswith(".pyc") or path.startswith("conda-meta/"):
        return False
    return path in owned.placeholders or path not in owned.packaged or path.startswith("bin/")


def _moved_link(link: str, source: str, target: str) -> str:
    if link == source or link.startswith(source + "/"):
        return target + link[len(source) :]
    return link


def _moved_content(content: bytes, old: bytes, new: bytes, room: int | None, name: str) -> bytes:
    if b"\0" in content:
        return _moved_strings(content, old, new, room, name)
    moved = re.sub(re.escape(old) + _BOUNDARY, lambda _: new, content)
    first, newline, rest = moved.partition(b"\n")
    if first.startswith(b"#!" + new) and len(first) > _SHEBANG_LIMIT:
        program, _, argument = first[2:].partition(b" ")
        if b"python" in program.rsplit(b"/", 1)[-1]:
            # a shell runs the second line, to Python it is a string
            return b"#!/bin/sh\n'''exec' " + program + b" \"$0\" \"$@\"\n' '''" + newline + rest
        interpreter = b"#!/usr/bin/env -S " + program.rsplit(b"/", 1)[-1] + b" " + argument
        return interpreter.rstrip() + newline + rest
    return moved


def _moved_strings(content: bytes, old: bytes, new: bytes, room: int | None, name: str) -> bytes:
    """In a binary file nothing may change its place: strings end with zeros where they become shorter, and
    use up the zeros after them where they become longer.
    """
    growth = len(new) - len(old)
    limit = room if room is not None else len(old)
    if len(new) > limit:
        raise WmlceError(
            f"the path is too long for a clone: {name} has room for {limit} bytes, the path has {len(new)}",
            remedy="choose a shorter path",
        )

    def replace(match: re.Match[bytes]) -> bytes:
        text, zeros = match.group(1), match.group(2)
        moved, count = re.subn(re.escape(old) + _BOUNDARY, lambda _: new, text)
        padding = len(zeros) - count * growth
        if padding < 1:
            raise WmlceError(
                f"the path of the clone is too long for a string in {name}", remedy="choose a shorter path"
            )
        return moved + b"\0" * padding

    return re.sub(b"(" + re.escape(old) + _BOUNDARY + rb"[^\0]*)(\0+)", replace, content)


def _share_or_copy(source: Path, target: Path, copy: bool) -> bool:
    """True when the new file shares the old one's storage."""
    if _reflink(source, target):
        _copy_metadata(source, target)
        return True
    if not copy:
        try:
            os.link(source, target)
            return True
        except OSError as error:
            # EPERM: another user's file, which the kernel does not let us link
            if error.errno not in (errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP):
                raise
    shutil.copyfile(source, target)
    _copy_metadata(source, target)
    return False


def _copy_metadata(source: Path, target: Path) -> None:
    """Times included: Python takes a compiled module only with its source's time."""
    shutil.copystat(source, target)
    os.chmod(target, stat.S_IMODE(source.stat().st_mode) | stat.S_IWUSR)


def _reflink(source: Path, target: Path) -> bool:
    """A copy on file systems that store it only once (XFS, Btrfs)."""
    try:
        with source.open("rb") as reader, target.open("xb") as writer:
            fcntl.ioctl(writer.fileno(), _FICLONE, reader.fileno())
        return True
    except OSError as error:
        target.unlink(missing_ok=True)
        if error.errno in _NO_REFLINK:
            return False
        raise


def _mark(source: Path, scratch: Path, target: Path) -> None:
    """The marker says where an environment was made; with the source's own it would count as moved."""
    try:
        marker = dict(json.loads(text_of(source / MARKER)))
    except (OSError, ValueError, TypeError):
        marker = {}
    # nobody has compared this one with what was signed, and the source may be another account's
    marker["signed"] = False
    (scratch / MARKER).unlink(missing_ok=True)
    write_json(scratch / MARKER, {**marker, "prefix": str(target), "cloned_from": str(source)})
