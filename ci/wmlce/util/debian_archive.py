"""Unpacking Debian packages into a folder that will be a system's root, and nowhere else.

What dpkg does in a root that it has entered, done from outside: a link inside the root, absolute or not,
leads to a place inside the root. `tar` would follow it onto the machine that unpacks.
"""

from __future__ import annotations

import lzma
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

from debian.debfile import DebError, DebFile

from wmlce.util.errors import WmlceError

_MOST_LINKS = 40
"""On one way: the kernel's own limit."""


def unpack(file: Path, root: Path, left_out: Callable[[str], bool] = lambda _: False) -> None:
    """Unpack a .deb file. Owners and set-user-id bits are dropped.

    left_out: names (`usr/share/man/...`) that are not wanted
    """
    try:
        with DebFile(str(file)) as package, package.data.tgz() as archive:
            for member in archive:
                name = os.path.normpath(member.name).lstrip("/")
                if name != "." and not left_out(name):
                    _extract(archive, member, name, root)
    except (DebError, tarfile.TarError, lzma.LZMAError, EOFError, ValueError, OSError) as error:
        raise WmlceError(
            f"{file.name} cannot be unpacked: {error}",
            remedy=f"delete {file} and run the command again",
        ) from error


def inside(root: Path, name: str) -> Path:
    """The place in `root` that a path of the system means, its links followed as if `root` were the system's
    own; the last part may be absent.
    """
    todo = [part for part in reversed(name.split("/")) if part not in ("", ".")]
    parts: list[str] = []
    links = 0
    while todo:
        part = todo.pop()
        if part == "..":
            parts = parts[:-1]  # above the root is the root
            continue
        path = root.joinpath(*parts, part)
        if path.is_symlink():
            links += 1
            if links > _MOST_LINKS:
                raise ValueError(f"{name}: too many links")
            target = os.readlink(path)
            if target.startswith("/"):
                parts = []
            todo += [part for part in reversed(target.split("/")) if part not in ("", ".")]
        else:
            parts.append(part)
    return root.joinpath(*parts)


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, name: str, root: Path) -> None:
    if name.split("/")[0] == "..":
        raise ValueError(f"{member.name} is above the root")
    parent, _, last = name.rpartition("/")
    if member.isdir():
        place = inside(root, name)  # a folder that is a link here stays one
        place.mkdir(parents=True, exist_ok=True)
        place.chmod(0o755)
        return
    folder = inside(root, parent)
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / last
    if place.is_dir() and not place.is_symlink():
        raise ValueError(f"{member.name} is a folder already")
    place.unlink(missing_ok=True)
    if member.issym():
        place.symlink_to(member.linkname)
        return
    if member.islnk():
        source = inside(root, os.path.normpath(member.linkname))
        os.link(source, place)
        return
    content = archive.extractfile(member) if member.isreg() else None
    if content is None:
        raise ValueError(f"{member.name} is a device")
    with place.open("xb") as stream:
        shutil.copyfileobj(content, stream, 1 << 20)
    place.chmod(0o755 if member.mode & 0o111 else 0o644)
    os.utime(place, (member.mtime, member.mtime))
