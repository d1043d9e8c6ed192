"""Runs one trial where the engine wants it: attempts in processes of their own."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
from typing import Any

from .errors import TrialLost

#: What travels to a worker, and back; JSON through and through.
Task = dict[str, Any]
Outcome = dict[str, Any]
_PAUSE_SECONDS = 0.2


def failed(error: str) -> Outcome:
    return {"status": "failed", "value": None, "metrics": {}, "error": error}


def run_trial(task: Task, stop: threading.Event | None = None) -> Outcome | None:
    """Runs a trial up to its end, and again after a failure where the task allows it.

    Args:
        task: The trial.
        stop: Ends the trial when it is set.

    Returns:
        How it went; None if it was stopped.

    Raises:
        TrialLost: Another process runs it.
    """
    start_time, attempts = time.time(), 0
    while True:
        attempts += 1
        outcome = _attempt(task, stop or threading.Event())
        if outcome is None:
            return None
        if outcome["status"] != "failed" or attempts > task["retries"]:
            end = {"seconds": time.time() - start_time, "attempts": attempts, "host": socket.gethostname()}
            return outcome | end


def _attempt(task: Task, stop: threading.Event) -> Outcome | None:
    # Not from the folder it runs in, which may have a file of the name of a module.
    command = [sys.executable, "-P", "-m", f"{__package__}.trial_process"]
    folder = task["cwd"] if os.path.isdir(task["cwd"]) else None
    pipe, report = subprocess.PIPE, b""
    try:
        with subprocess.Popen(
            command, stdin=pipe, stdout=pipe, cwd=folder, start_new_session=True
        ) as supervisor:
            assert supervisor.stdin and supervisor.stdout
            supervisor.stdin.write(json.dumps(task).encode() + b"\n")
            supervisor.stdin.flush()
            while not select.select([supervisor.stdout], [], [], _PAUSE_SECONDS)[0]:
                if stop.is_set():
                    return None  # it ends all when its standard input ends
            report = supervisor.stdout.read()
    except BrokenPipeError:
        pass
    outcome: Outcome = json.loads(report or "null") or failed(
        "the process that watches over the trial was killed"
    )
    if outcome["status"] == "locked":
        raise TrialLost(f"another process still runs this trial in {task['folder']}; wait for its end")
    return outcome
