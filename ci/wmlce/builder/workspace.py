"""The folders that builds work in: in memory where there is enough, as a build makes and deletes thousands of
small files, which takes a disk most of the build's time.
"""

from __future__ import annotations

import os
import stat
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wmlce.util.errors import WmlceError
from wmlce.util.files import disk_errors, remove_tree
from wmlce.util.host import memory_available
from wmlce.util.scratch import scratch_folder

_MEMORY = Path("/dev/shm")
_SETTING = "WMLCE_BUILD_MEMORY_MB"

#: What becomes in a build's folder of each byte of its sources, which are unpacked, compiled, installed,
#: packed, and installed again for the test, and of each of the packages that it needs. Estimates.
_OF_SOURCES, _OF_PACKAGES, _LEAST = 20, 5, 50_000_000


class Workspaces:
    """Lends folders to the builds of one command."""

    def __init__(self, disk: Path, memory: Path = _MEMORY) -> None:
        """disk: where folders are that memory has no room for.

        Raises:
            WmlceError: The setting is not a number.
        """
        self._disk = disk
        self._memory: Path | None = None
        self._left = 0
        self._lock = threading.Lock()
        setting = os.environ.get(_SETTING, "")
        if setting and not setting.isdecimal():
            raise WmlceError(
                f"{_SETTING}={setting} is not a number",
                remedy="give the memory that builds may work in, in MB; 0: they work on the disk",
            )
        if setting == "0" or not _fits(memory):
            return
        file_system = os.statvfs(memory)
        most = int(setting) * 1_000_000 if setting else memory_available() // 2
        self._memory = memory / f"wmlce-{os.getuid()}"
        self._left = min(most, file_system.f_bavail * file_system.f_frsize)

    @contextmanager
    def lend(self, name: str, sources: int, packages: int) -> Iterator[tuple[Path, bool]]:
        """A folder for a build of this name, and whether it is in memory.

        sources, packages: bytes of what goes in
        """
        need = _LEAST + _OF_SOURCES * sources + _OF_PACKAGES * packages
        with self._lock:
            parent = self._memory if need <= self._left else None
            if parent is not None:
                self._left -= need
        if parent is None:
            with self.on_disk(name) as folder:
                yield folder, False
            return
        try:
            _make_own(parent)
            with scratch_folder(parent, "build") as folder:
                yield folder, True
        finally:
            with self._lock:
                self._left += need

    @contextmanager
    def on_disk(self, name: str) -> Iterator[Path]:
        with disk_errors(f"preparing the build of '{name}'"):
            self._disk.mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(prefix=f"{name[:24]}-", dir=self._disk))
        try:
            yield folder
        finally:
            remove_tree(folder)


def _fits(memory: Path) -> bool:
    """Is this a file system that one may write to, and start programs from?"""
    try:
        return os.access(memory, os.W_OK | os.X_OK) and not os.statvfs(memory).f_flag & os.ST_NOEXEC
    except OSError:
        return False


def _make_own(folder: Path) -> None:
    """A folder that nobody else can put anything into, where everybody may make folders."""
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise WmlceError(
            f"{folder} belongs to somebody else, or others may write there",
            remedy=f"delete it, or let builds work on the disk: {_SETTING}=0",
        )
