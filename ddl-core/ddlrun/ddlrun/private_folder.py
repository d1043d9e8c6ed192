"""A folder of this user alone on a file system that others write to as well, such as /tmp.

A name there may be taken by somebody else, who could then replace files, or plant links. So the owner, the
kind and the
mode of a folder that exists already are looked at before it is used.
"""

from __future__ import annotations

import getpass
import os
import stat
import tempfile
from pathlib import Path


def user() -> str:
    """The name of this user, or the number where there is no account, as in containers."""
    try:
        return "".join(c for c in getpass.getuser() if c.isalnum() or c in "._-") or str(os.getuid())
    except (KeyError, OSError):
        return str(os.getuid())


def is_private(folder: Path) -> bool:
    """Whether it is a real folder of this user. Where others may enter it, they no longer may afterwards."""
    try:
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            return False
        if stat.S_IMODE(status.st_mode) & 0o077:
            folder.chmod(0o700)
    except OSError:
        return False
    return True


def private_folder(base: Path, prefix: str) -> Path:
    """The folder PREFIX.USER in `base`, of mode 0700; with a random name where somebody else has taken that.

    Raises:
        OSError: None can be made.
    """
    folder = base / f"{prefix}.{user()}"
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        if not is_private(folder):
            return Path(tempfile.mkdtemp(prefix=f"{prefix}.{user()}.", dir=base))
    return folder
