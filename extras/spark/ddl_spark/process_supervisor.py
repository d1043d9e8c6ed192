"""Starts processes for another one, its owner, and ends them all when that one ends, however it does.

    python -m ddl_spark.process_supervisor [--remove FOLDER]

The owner writes requests to standard input, a line of JSON each, and reads an answer to each:

    {"start": WORDS, "environment": {}, "folder": DIR, "log": FILE}    {"pid": N}, or {"error": TEXT}
    {"signal": PID, "number": N}                                       {}; nothing is sent to what has ended
    {"ended": PID}                                                     {"status": N}, or null while it runs

The supervisor ends with its input, or with its owner. Then it ends everything below it, also what has left
its parent or its session, and removes FOLDER. It is the parent, so the number of a process is never that of
another.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from ddlrun import processes

_LOOK_SECONDS = 0.5
_POLITE_SECONDS = 5.0


class _Supervisor:
    def __init__(self) -> None:
        self._started: dict[int, subprocess.Popen[bytes]] = {}
        self._codes: dict[int, int] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        self.collect()
        if "start" in request:
            return {"pid": self._start(request)}
        if "ended" in request:
            return {"status": self._codes.get(request["ended"])}
        pid = request["signal"]
        if pid in self._started and pid not in self._codes:
            os.kill(pid, request["number"])
        return {}

    def _start(self, request: dict[str, Any]) -> int:
        with open(request["log"], "ab") as log:
            child = subprocess.Popen(
                request["start"],
                env=request["environment"],
                cwd=request["folder"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is the owner's
                preexec_fn=processes.die_with_parent(signal.SIGTERM),
            )
        self._started[child.pid] = child
        return child.pid

    def collect(self) -> None:
        """Notes which processes have ended, and lets orphans go."""
        self._codes |= processes.reap()

    def end(self) -> None:
        """Ends what is below this process: by SIGTERM what was asked for, then by SIGKILL what is left."""
        self.collect()
        running = [pid for pid in self._started if pid not in self._codes]
        processes.end_descendants(running, _POLITE_SECONDS)


def _serve(supervisor: _Supervisor, owner: int) -> None:
    """Answers until the owner says no more."""
    unread = b""
    # A child that the owner has forked may hold the pipe open for longer than the owner lives.
    while os.getppid() == owner:
        supervisor.collect()
        if not select.select([0], [], [], _LOOK_SECONDS)[0]:
            continue
        data = os.read(0, 65536)
        if not data:
            return
        *lines, unread = (unread + data).split(b"\n")
        for line in lines:
            try:
                reply = supervisor.answer(json.loads(line))
            except OSError as error:
                reply = {"error": str(error)}
            print(json.dumps(reply), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--remove", type=Path)
    options = parser.parse_args()
    owner = os.getppid()
    processes.adopt_orphans()
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    supervisor = _Supervisor()
    try:
        _serve(supervisor, owner)
    except BrokenPipeError:
        pass  # the owner has ended between its request and the answer
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        supervisor.end()
        if options.remove:
            shutil.rmtree(options.remove, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
