"""Runs a command, and ends it with all that it has started: at its end, after a limit, or with its starter.

    python warden.py LIMIT FOLDER COMMAND…

LIMIT is in seconds; 0 is none. The starter writes one line, which becomes the command's whole input, and
keeps the pipe open: its end is the starter's end, however that came. What the command prints goes to
FOLDER/output.txt. A line of JSON on standard output tells how it ended. No two wardens work in a folder at
the same time.

This file is run by its path and imports nothing of the package, to be there at once.
"""

import ctypes
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

#: How long a command that has got SIGTERM may take for its end.
GRACE_SECONDS = 5.0
_LOCK_SECONDS = 4 * GRACE_SECONDS
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_libc = ctypes.CDLL(None, use_errno=True)


def _read_line() -> bytes:
    data = b""
    while not data.endswith(b"\n"):
        part = os.read(0, 1 << 20)
        if not part:
            sys.exit(1)  # the starter is gone already
        data += part
    return data


def _locked(folder: Path) -> bool:
    """Waits for a warden before, whose starter was killed a moment ago. The lock ends with this process."""
    lock = os.open(folder / "warden.lock", os.O_CREAT | os.O_RDWR, 0o666)
    end = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > end:
                return False
            time.sleep(0.05)


def _reap() -> dict[int, int]:
    """Codes of the children that have ended."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = os.waitstatus_to_exitcode(status)


def _children() -> list[int]:
    """Orphans of the command are ours, as this process is their reaper."""
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            # The name, in parentheses, may hold anything.
            if int(stat.rpartition(")")[2].split()[1]) == os.getpid():
                pids.append(int(entry.name))
    return pids


def _signal(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        pass


def _end_all(group: int, wake: int) -> dict[int, int]:
    """SIGTERM to the command's group, after a time SIGKILL to all that is left."""
    ended = _reap()
    end = time.monotonic() + GRACE_SECONDS
    _signal(group, signal.SIGTERM)
    while _children() and time.monotonic() < end:
        select.select([wake], [], [], 0.05)
        ended |= _reap()
    end = time.monotonic() + GRACE_SECONDS
    while (remaining := _children()) and time.monotonic() < end:
        _signal(group, signal.SIGKILL)
        for pid in remaining:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
        ended |= _reap()
    return ended


def main(limit: float, folder: Path, command: list[str]) -> None:
    data = _read_line()
    folder.mkdir(parents=True, exist_ok=True)
    if not _locked(folder):
        print(json.dumps({"how": "locked", "code": None}), flush=True)
        return
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wake, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(woken)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    start_time = time.monotonic()
    with tempfile.TemporaryFile() as text, (folder / "output.txt").open("ab") as output:
        text.write(data)
        text.seek(0)
        child = subprocess.Popen(
            command,
            stdin=text,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            # This process has one thread. Who kills it, kills the command, too.
            preexec_fn=lambda: _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0),
        )
    how, ended = "", _reap()
    while not how:
        wait = max(0.0, start_time + limit - time.monotonic()) if limit else None
        ready, _, _ = select.select([0, wake], [], [], wait)
        if wake in ready:
            os.read(wake, 4096)
        ended |= _reap()
        if child.pid in ended:
            how = "ended"
        elif 0 in ready and not os.read(0, 4096):
            how = "orphaned"
        elif limit and time.monotonic() - start_time >= limit:
            how = "limit"
    ended |= _end_all(child.pid, wake)
    if how != "orphaned":
        print(json.dumps({"how": how, "code": ended.get(child.pid)}), flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
