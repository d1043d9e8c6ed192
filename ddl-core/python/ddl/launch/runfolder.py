"""The folder of one start: its log, its placement. It stays, for whoever has to find out what happened."""

import getpass
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from .errors import Code, LaunchError


class RunFolder:
    """`${TMPDIR:-/tmp}/DDLRUN/<time>.<user>.<unique>` with ddlrun.log, HOSTFILE and RANKFILE."""

    def __init__(self) -> None:
        base = Path(os.environ.get("TMPDIR") or "/tmp")
        where = f"TMPDIR {base}" if os.environ.get("TMPDIR") else str(base)
        shared = base / "DDLRUN"
        try:
            try:
                shared.mkdir()
                shared.chmod(0o1777)  # like /tmp: every user of the host may have folders here
            except FileExistsError:
                pass
            stamp = time.strftime("%Y%m%d-%H%M%S")
            self.path = Path(tempfile.mkdtemp(prefix=f"{stamp}.{_user()}.", dir=shared))
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
        self._log.close()

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _user() -> str:
    try:
        return "".join(c for c in getpass.getuser() if c.isalnum() or c in "._-") or str(os.getuid())
    except (KeyError, OSError):  # an account without an entry, as in containers
        return str(os.getuid())
