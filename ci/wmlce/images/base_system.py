"""The few Debian packages below an environment in an image: unpacked without installation."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Sequence
from pathlib import Path

from wmlce.channel.verify.elf import read_dynamic
from wmlce.util import debian_archive
from wmlce.util.errors import WmlceError
from wmlce.util.files import disk_errors, write_atomic
from wmlce.util.platform import of_this_machine

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
    "usr/lib/*-linux-gnu/gconv",
    "etc/init.d",
    "etc/default",
)
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
            debian_archive.unpack(file, root, _left_out)
        for name in ("tmp", "var/tmp"):
            (root / name).chmod(0o1777)
        for name, text in _FILES.items():
            write_atomic(root / name, text)
        for program in ("usr/bin/mawk",):
            if (root / program).exists() and not (root / "usr/bin/awk").exists():
                (root / "usr/bin/awk").symlink_to("mawk")
    _require_libraries(root)


def _left_out(name: str) -> bool:
    """Is it, or what it lies in, what nobody reads?"""
    parts = name.split("/")
    places = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
    return any(fnmatch.fnmatchcase(place, pattern) for place in places for pattern in _LEFT_OUT)


def _require_libraries(root: Path) -> None:
    places = (f"usr/lib/{of_this_machine().multiarch}", "usr/lib64", "usr/lib")
    present = {path.name for place in places for path in (root / place).glob("*.so*")}
    lacking: dict[str, list[str]] = {}
    for folder, _, names in os.walk(root / "usr"):
        for name in names:
            path = Path(folder) / name
            if path.is_symlink() or (dynamic := read_dynamic(path)) is None:
                continue
            for library in dynamic.needed:
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
