"""Runs a command, and ends it with all that it has started: at its end, after a limit, or with its starter.

    python trial_supervisor.py LIMIT FOLDER COMMAND…

LIMIT is in seconds; 0 is none. The starter writes one line, which becomes the command's whole input, and
keeps the pipe open: its end is the starter's end, however that came. What the command prints goes to
FOLDER/output.txt. A line of JSON on standard output tells how it ended. No two supervisors work in a
folder at the same time.

This file is run by its path and imports nothing of the package but ddlrun's processes, to be there at once.
"""

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

from ddlrun import processes

#: How long a command that has got SIGTERM may take for its end.
GRACE_SECONDS = 5.0
_LOCK_SECONDS = 4 * GRACE_SECONDS


def _read_line() -> bytes:
    data = b""
    while not data.endswith(b"\n"):
        part = os.read(0, 1 << 20)
        if not part:
            sys.exit(1)  # the starter is gone already
        data += part
    return data


def _locked(folder: Path) -> bool:
    """Waits for an earlier supervisor, whose starter was just killed. The lock ends with this process."""
    lock = os.open(folder / "supervisor.lock", os.O_CREAT | os.O_RDWR, 0o666)
    end = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > end:
                return False
            time.sleep(0.05)


def main(limit: float, folder: Path, command: list[str]) -> None:
    data = _read_line()
    folder.mkdir(parents=True, exist_ok=True)
    if not _locked(folder):
        print(json.dumps({"how": "locked", "code": None}), flush=True)
        return
    processes.adopt_orphans()
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
            preexec_fn=processes.die_with_parent(signal.SIGKILL),
        )
    how, codes = "", processes.reap()
    while not how:
        wait = max(0.0, start_time + limit - time.monotonic()) if limit else None
        ready, _, _ = select.select([0, wake], [], [], wait)
        if wake in ready:
            os.read(wake, 4096)
        codes |= processes.reap()
        if child.pid in codes:
            how = "ended"
        elif 0 in ready and not os.read(0, 4096):
            how = "orphaned"
        elif limit and time.monotonic() - start_time >= limit:
            how = "limit"
    codes |= processes.end_descendants([-child.pid], GRACE_SECONDS)
    if how != "orphaned":
        print(json.dumps({"how": how, "code": codes.get(child.pid)}), flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
