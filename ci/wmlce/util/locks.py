"""Locks between processes, held by the kernel: a killed holder releases them, a leftover file means
nothing.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from wmlce.util.errors import WmlceError
from wmlce.util.files import disk_errors

WAIT_LIMIT_S = 3600.0
"""How long a run waits for another one: longer than the longest single package takes to build."""
_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)


def flock(handle: int, operation: int, path: Path) -> None:
    """The call of the system; an error where the file system of `path` has no such locks."""
    try:
        fcntl.flock(handle, operation)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        raise WmlceError(
            f"{path} cannot be locked: {error.strerror}",
            remedy=f"the file system of {path.parent} has no flock: mount it with it (Lustre: -o flock), "
            "or use a folder on another one (WMLCE_CACHE for the cache)",
        ) from error


@contextmanager
def file_lock(
    path: Path,
    purpose: str,
    *,
    say: Callable[[str], None],
    limit_s: float = WAIT_LIMIT_S,
    stop: threading.Event | None = None,
    shared: bool = False,
) -> Iterator[None]:
    """Hold `path` exclusively, or beside others that hold it `shared`; while that is not possible, say so
    once a minute and give up after `limit_s`.

    The file's content (the pid of an exclusive holder) is only for the message; it is never trusted.
    """
    with disk_errors(f"locking {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            if error.errno in (errno.EISDIR, errno.ELOOP):
                raise WmlceError(
                    f"the lock {path} is not a plain file",
                    remedy=f"delete {path} and run the command again",
                ) from error
            raise
    try:
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        started = time.monotonic()
        reported = -60.0
        while True:
            try:
                flock(handle, kind | fcntl.LOCK_NB, path)
                break
            except BlockingIOError:
                pass
            waited = time.monotonic() - started
            holder = os.pread(handle, 32, 0).decode(errors="replace").strip()
            holder = f"process {holder}" if holder.isdigit() else "another process"
            if waited > limit_s:
                raise WmlceError(
                    f"{holder} still holds {path} ({purpose}) after {waited:.0f} s",
                    remedy="wait for it to end, or end it, and run the command again",
                )
            if stop is not None and stop.is_set():
                raise WmlceError(f"stopped while waiting for {holder} ({purpose})")
            if waited - reported >= 60:
                reported = waited
                say(f"waiting for {holder} ({purpose}), {waited:.0f} s so far")
            time.sleep(0.1)
        os.ftruncate(handle, 0)
        if not shared:
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)
