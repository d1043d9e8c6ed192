"""Scratch folders of commands: gone at their end, also when they are interrupted, and swept by the next one
when they were killed.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wmlce.util.files import disk_errors, remove_tree
from wmlce.util.locks import flock

_ENDING = ".scratch"


@contextmanager
def scratch_folder(parent: Path, purpose: str) -> Iterator[Path]:
    """A folder in `parent` that only this call uses. What killed calls left there of the same purpose goes
    first: each folder has a locked file beside it, and the kernel drops a lock with its process.
    """
    with disk_errors(f"making a scratch folder in {parent}"):
        parent.mkdir(parents=True, exist_ok=True)
        _sweep(parent, purpose)
        handle, name = _locked_file(parent, purpose)
    folder = Path(name).with_suffix("")
    try:
        with disk_errors(f"making {folder}"):
            folder.mkdir()
        yield folder
    finally:
        remove_tree(folder)
        Path(name).unlink(missing_ok=True)
        os.close(handle)


def _locked_file(parent: Path, purpose: str) -> tuple[int, str]:
    while True:
        handle, name = tempfile.mkstemp(prefix=f"{purpose}-", suffix=_ENDING, dir=parent)
        try:
            flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, Path(name))
            if os.path.exists(name):  # no sweep took it for a leftover in between
                return handle, name
        except BlockingIOError:
            pass
        os.close(handle)


def _sweep(parent: Path, purpose: str) -> None:
    for mark in parent.glob(f"{purpose}-*{_ENDING}"):
        try:
            handle = os.open(mark, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue
        try:
            flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, mark)
            remove_tree(mark.with_suffix(""))
            mark.unlink(missing_ok=True)
        except BlockingIOError:
            pass
        finally:
            os.close(handle)
