"""The folder of one start: its log, its placement. It stays, for whoever has to find out what happened."""

import contextlib
import os
import re
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from .errors import Code, LaunchError
from .private_folder import private_folder, user

KEPT_DAYS = 30
_STAMPED = re.compile(r"\d{8}-\d{6}\.")
# mpirun cuts the name of a rankfile there.
_CUTS = re.compile("[:,]")


def _remove_old(folder: Path) -> None:
    """Remove the folders of starts of long ago; a job that still runs has written to its log since."""
    limit = time.time() - KEPT_DAYS * 86400
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            with contextlib.suppress(OSError):
                times = [entry.stat(follow_symlinks=False).st_mtime] if _STAMPED.match(entry.name) else []
                if times and max(*times, os.stat(f"{entry.path}/ddlrun.log").st_mtime) < limit:
                    shutil.rmtree(entry.path, ignore_errors=True)


class RunFolder:
    """`${TMPDIR:-/tmp}/DDLRUN.<user>/<time>.<user>.<unique>` with ddlrun.log, HOSTFILE and RANKFILE.

    Nobody else may enter it: mpirun believes what these files say. Folders of this user that nothing was
    written to for a month are removed.
    """

    def __init__(self) -> None:
        base = Path(os.environ.get("TMPDIR") or "/tmp")
        where = f"TMPDIR {base}" if os.environ.get("TMPDIR") else str(base)
        if _CUTS.search(str(base)):
            raise LaunchError(
                Code.FOLDER,
                f"mpirun does not take a folder with a colon or a comma in its name: {base}",
                where,
                "set TMPDIR to another folder",
            )
        try:
            stamp = time.strftime("%Y%m%d-%H%M%S")
            user_folder = private_folder(base, "DDLRUN")
            self.path = Path(tempfile.mkdtemp(prefix=f"{stamp}.{user()}.", dir=user_folder))
            _remove_old(user_folder)
            self._log = (self.path / "ddlrun.log").open("w", encoding="utf-8", errors="replace")
        except OSError as error:
            raise LaunchError(
                Code.FOLDER,
                f"no folder can be made for this start: {error.strerror}: {error.filename}",
                where,
                "set TMPDIR to a folder that exists, has room, and that you may write to",
            ) from error
        self._lock = threading.Lock()

    @property
    def job(self) -> str:
        """A name that no other start has."""
        return self.path.name

    @property
    def log_path(self) -> Path:
        return self.path / "ddlrun.log"

    def log(self, text: str) -> None:
        with self._lock:
            try:
                self._log.write(f"{time.strftime('%H:%M:%S')} {text}\n")
                self._log.flush()
            except (OSError, ValueError):
                pass  # a full disk must not end the job that is being logged

    def write(self, name: str, text: str) -> Path:
        path = self.path / name
        try:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        except OSError as error:
            raise LaunchError(
                Code.FOLDER,
                f"cannot write {name}: {error.strerror}",
                str(self.path),
                "make room, or set TMPDIR to another folder",
            ) from error
        return path

    def close(self) -> None:
        with contextlib.suppress(OSError):  # a full disk
            self._log.close()

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
