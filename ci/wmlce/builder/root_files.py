"""What lies in a build root: unpacked Debian packages, and the few files that installing them would make."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Iterable
from pathlib import Path

from wmlce.util import debian_archive
from wmlce.util.files import write_atomic

_MERGED = ("bin", "sbin", "lib", "lib64")
_MOUNT_POINTS = ("build", "clone", "dev", "proc", "tmp", "tools")
_UNREAD = re.compile(r"usr/share/(man|info|locale|lintian|bug|doc/(?!.*/copyright$).*/)")
_FILES = {
    "etc/passwd": "root:x:0:0:root:/:/bin/bash\nbuild:x:1000:1000:build:/build/home:/bin/bash\n",
    "etc/group": "root:x:0:\nbuild:x:1000:\n",
    "etc/hosts": "127.0.0.1 localhost build\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
_LINKS = {"usr/bin/awk": "gawk", "usr/bin/cc": "gcc", "usr/bin/c++": "g++", "etc/localtime": "/dev/null"}


def unpack(files: Iterable[Path], root: Path) -> None:
    """Unpack Debian packages, and programs out of wheels, into `root`."""
    for name in _MERGED:
        (root / "usr" / name).mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(f"usr/{name}")
    for file in files:
        if file.suffix == ".whl":
            _take_programs(file, root)
        else:
            debian_archive.unpack(file, root, lambda name: bool(_UNREAD.match(name)))
    for name in _MOUNT_POINTS:
        (root / name).mkdir(exist_ok=True)
    for name, text in _FILES.items():
        write_atomic(root / name, text)
    certificates = sorted((root / "usr/share/ca-certificates").rglob("*.crt"))
    if certificates:
        text = "".join(path.read_text() for path in certificates)
        write_atomic(root / "etc/ssl/certs/ca-certificates.crt", text)
    for name, target in _LINKS.items():
        if not os.path.lexists(root / name):
            (root / name).symlink_to(target)


def _take_programs(wheel: Path, root: Path) -> None:
    """The programs of a wheel, which are in its folder of scripts."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            if re.fullmatch(r"[^/]+\.data/scripts/[A-Za-z0-9._-]+", member.filename):
                target = root / "usr/bin" / Path(member.filename).name
                target.write_bytes(archive.read(member))
                target.chmod(0o755)
