"""The few Debian packages below an environment in an image: fetched by name, unpacked without installation.

apt picks the versions (security fixes included) and compares every file with its signed index; an image
records what it got.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from wmlce.channel.verify.elf import read_dynamic
from wmlce.sources.apt import PrivateApt
from wmlce.util import debian_archive
from wmlce.util.errors import WmlceError
from wmlce.util.files import disk_errors, remove_tree, sha256_file, store_atomic, write_atomic, write_json
from wmlce.util.layout import Layout

_OFFER = re.compile(
    r"^'(?P<uri>[^']+)' (?P<file>[A-Za-z0-9.+~_%-]+\.deb) (?P<size>\d+) SHA256:(?P<sha>[0-9a-f]{64})$"
)
_FOLDERS = ("bin", "sbin", "lib", "lib64")
#: Of a package, what nobody reads in an image; licences stay.
_LEFT_OUT = (
    "usr/share/man",
    "usr/share/info",
    "usr/share/locale",
    "usr/share/lintian",
    "usr/share/bug",
    "usr/share/bash-completion",
    "usr/share/doc/*/changelog*",
    "usr/share/doc/*/NEWS*",
    "usr/share/doc/*/README*",
    "usr/share/doc/*/examples",
    "lib/systemd",
    "usr/lib/systemd",
    "lib/udev",
    "usr/share/systemd",
    "usr/lib/x86_64-linux-gnu/gconv",
    "etc/init.d",
    "etc/default",
)
_PLACES = ("usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/lib")
_FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n",
    "etc/group": "root:x:0:\ntty:x:5:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    "etc/hosts": "127.0.0.1 localhost\n",
    # what a runtime binds the host's own over
    "etc/resolv.conf": "",
    "etc/localtime": "",
}
_EMPTY = ("dev", "home", "mnt", "opt", "proc", "root", "run", "srv", "sys", "tmp", "var/tmp", "scratch")


@dataclass(frozen=True)
class DebianPackage:
    """A package as apt offers it now."""

    name: str
    version: str
    file: str
    sha256: str


def wanted(listing: Path) -> list[str]:
    """The names in a list of packages: the first word of each line."""
    try:
        lines = listing.read_text().splitlines()
    except OSError as error:
        raise WmlceError(
            f"{listing} cannot be read: {error.strerror}", remedy="restore it from git"
        ) from error
    return [line.split()[0] for line in lines if line.strip() and not line.startswith("#")]


def resolve(
    layout: Layout, names: Sequence[str], say: Callable[[str], None], remember: str = "resolved.json"
) -> list[DebianPackage]:
    """Version and digest of each package. Without a network: those of the last time, where all are cached.

    remember: the file in the cache that holds those of the last time.
    """
    apt = PrivateApt(layout, say)
    remembered = _folder(layout) / remember
    try:
        apt.update()
    except WmlceError as error:
        known = _remembered(layout, remembered, names)
        if known is None:
            raise
        say(f"{error.what}; taking the Debian packages of the last time")
        return known
    answer = apt.run("apt-get", "download", "--print-uris", "-qq", *names)
    offered: dict[str, DebianPackage] = {}
    for line in answer.lines:
        if found := _OFFER.match(line.strip()):
            name, version, _ = found["file"].removesuffix(".deb").split("_", 2)
            offered[name] = DebianPackage(name, version.replace("%3a", ":"), found["file"], found["sha"])
    missing = [name for name in names if name not in offered]
    if missing:
        raise WmlceError(
            f"Debian has no package {', '.join(missing[:4])}",
            detail=[line for line in answer.lines if line.startswith("E:")][-4:],
            remedy="correct containers/debian-packages.txt",
        )
    resolved = [offered[name] for name in names]
    write_json(remembered, [asdict(package) for package in resolved])
    return resolved


def _folder(layout: Layout) -> Path:
    return layout.cache / "debian"


def _cached(layout: Layout, package: DebianPackage) -> Path:
    return _folder(layout) / f"{package.sha256[:16]}-{package.file}"


def _remembered(layout: Layout, file: Path, names: Sequence[str]) -> list[DebianPackage] | None:
    try:
        known = {entry["name"]: DebianPackage(**entry) for entry in json.loads(file.read_text())}
    except (OSError, ValueError, TypeError, KeyError):
        return None
    found = [known[name] for name in names if name in known]
    whole = len(found) == len(names) and all(_cached(layout, package).is_file() for package in found)
    return found if whole else None


def fetch(layout: Layout, packages: Sequence[DebianPackage], say: Callable[[str], None]) -> list[Path]:
    """The packages' files, in the cache."""
    absent = [package for package in packages if not _cached(layout, package).is_file()]
    if absent:
        folder = _folder(layout)
        folder.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=".part-", dir=folder))
        try:
            apt = PrivateApt(layout, say)
            apt.update()
            say(f"fetching {len(absent)} Debian packages with apt-get")
            words = [f"{package.name}={package.version}" for package in absent]
            answer = apt.run("apt-get", "download", "-q", *words, cwd=scratch)
            for package in absent:
                arrived = scratch / package.file
                if not arrived.is_file() or sha256_file(arrived) != package.sha256:
                    raise WmlceError(
                        f"apt-get could not fetch {package.file}",
                        detail=[line for line in answer.lines if line.startswith(("E:", "Err"))][-4:],
                        remedy="run `wmlce doctor`, then try again",
                    )
                store_atomic(arrived, _cached(layout, package))
        finally:
            remove_tree(scratch)
    return [_cached(layout, package) for package in packages]


def unpack(files: Sequence[Path], root: Path) -> None:
    """Make `root` a system of these packages, in which the programs find their libraries."""
    with disk_errors(f"unpacking Debian packages into {root}"):
        for name in _FOLDERS:
            (root / "usr" / name).mkdir(parents=True, exist_ok=True)
            if not (root / name).is_symlink():
                (root / name).symlink_to(f"usr/{name}")
        for name in _EMPTY:
            (root / name).mkdir(parents=True, exist_ok=True)
        for file in files:
            debian_archive.unpack(file, root, _is_left_out)
        for name in ("tmp", "var/tmp"):
            (root / name).chmod(0o1777)
        for name, text in _FILES.items():
            write_atomic(root / name, text)
        for program in ("usr/bin/mawk",):
            if (root / program).exists() and not (root / "usr/bin/awk").exists():
                (root / "usr/bin/awk").symlink_to("mawk")
    _require_libraries(root)


def _is_left_out(name: str) -> bool:
    """Is it, or a folder that it is in, among what nobody reads?"""
    parts = name.split("/")
    places = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
    return any(fnmatch.fnmatchcase(place, pattern) for place in places for pattern in _LEFT_OUT)


def _require_libraries(root: Path) -> None:
    present = {path.name for place in _PLACES for path in (root / place).glob("*.so*")}
    lacking: dict[str, list[str]] = {}
    for folder, _, names in os.walk(root / "usr"):
        for name in names:
            path = Path(folder) / name
            if path.is_symlink() or (found := read_dynamic(path)) is None:
                continue
            for library in found.needed:
                if library not in present:
                    lacking.setdefault(library, []).append(str(path.relative_to(root)))
    if lacking:
        raise WmlceError(
            f"programs of the image lack {', '.join(sorted(lacking))}",
            detail=[
                f"{library}: {', '.join(sorted(users)[:3])}" for library, users in sorted(lacking.items())
            ],
            remedy="name the packages that have them in containers/debian-packages.txt",
        )


def tools_missing() -> list[str]:
    """Programs without which no base can be made here."""
    return [name for name in ("apt-get", "dpkg-deb", "tar") if shutil.which(name) is None]
