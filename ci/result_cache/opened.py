"""Which files of the clone a command opens.

Linux's fanotify reports them, whichever process, user or namespace opens them.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

# linux/fanotify.h
_CLOEXEC = 0x1
_NONBLOCK = 0x2
_UNLIMITED_QUEUE = 0x10
_MARK_ADD_FILESYSTEM = 0x1 | 0x100
_OPEN_OF_FILES_AND_FOLDERS = 0x20 | 0x40000000
_AT_FDCWD = -100
_READING_S = 0.05


class _Event(ctypes.Structure):
    """struct fanotify_event_metadata."""

    _fields_ = (
        ("length", ctypes.c_uint32),
        ("version", ctypes.c_uint8),
        ("reserved", ctypes.c_uint8),
        ("metadata_length", ctypes.c_uint16),
        ("mask", ctypes.c_uint64),
        ("fd", ctypes.c_int32),
        ("pid", ctypes.c_int32),
    )


def _watch(root: Path) -> int:
    """A descriptor that reports each file opened in the file system of `root`.

    Raises:
        OSError: The kernel refuses; it takes the capability CAP_SYS_ADMIN.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    watch: int = libc.fanotify_init(_CLOEXEC | _NONBLOCK | _UNLIMITED_QUEUE, os.O_RDONLY | os.O_CLOEXEC)
    if watch < 0:
        raise OSError(ctypes.get_errno(), f"fanotify_init: {os.strerror(ctypes.get_errno())}")
    mask = ctypes.c_uint64(_OPEN_OF_FILES_AND_FOLDERS)
    if libc.fanotify_mark(watch, _MARK_ADD_FILESYSTEM, mask, _AT_FDCWD, os.fsencode(root)) != 0:
        error = ctypes.get_errno()
        os.close(watch)
        raise OSError(error, f"fanotify_mark {root}: {os.strerror(error)}")
    return watch


def _read(watch: int, paths: set[str]) -> None:
    """Adds the paths of all waiting events to `paths`."""
    size = ctypes.sizeof(_Event)
    while True:
        try:
            data = os.read(watch, 1 << 18)
        except BlockingIOError:
            return
        offset = 0
        while offset + size <= len(data):
            event = _Event.from_buffer_copy(data, offset)
            offset += event.length
            if event.fd >= 0:
                try:
                    paths.add(os.readlink(f"/proc/self/fd/{event.fd}"))
                finally:
                    os.close(event.fd)


def opened(root: Path, command: Sequence[str], *, timeout_s: float) -> tuple[int, set[Path]]:
    """Runs `command`.

    Returns:
        Its exit code; and the files and folders below `root` that any process opened meanwhile, relative to
        it.

    Raises:
        OSError: Without the capability CAP_SYS_ADMIN.
        subprocess.TimeoutExpired: It took longer than `timeout_s`; it was killed.
    """
    watch = _watch(root)
    paths: set[str] = set()
    finished = threading.Event()

    def read() -> None:
        while not finished.wait(_READING_S):
            _read(watch, paths)
        _read(watch, paths)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        status = subprocess.run(command, cwd=root, timeout=timeout_s, check=False).returncode
    finally:
        finished.set()
        reader.join()
        os.close(watch)
    prefix = f"{root}/"
    return status, {Path(path.removeprefix(prefix)) for path in paths if path.startswith(prefix)}
