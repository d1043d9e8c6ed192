"""Runs one trial where the engine wants it: attempts in processes of their own, the record of the last."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from .folder import ATTEMPT, Folder

#: What travels to a worker; JSON through and through.
Task = dict[str, Any]
Outcome = dict[str, Any]
_SUPERVISOR = str(Path(__file__).with_name("trial_supervisor.py"))
_OUTPUT_LINES = 10
_OUTPUT_BYTES = 2000


class Lifelines:
    """The pipes of the supervisors of this process: closing them ends their trials."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[subprocess.Popen[str]] = set()
        self.cut = False

    def start(self, command: list[str], folder: str | None) -> subprocess.Popen[str] | None:
        with self._lock:
            if self.cut:
                return None
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=folder,
                text=True,
                start_new_session=True,
            )
            self._open.add(process)
            return process

    def done(self, process: subprocess.Popen[str]) -> None:
        with self._lock:
            self._open.discard(process)
        for pipe in (process.stdin, process.stdout):
            if pipe:
                try:
                    pipe.close()
                except OSError:
                    pass
        process.wait()

    def cut_all(self) -> None:
        with self._lock:
            self.cut = True
            for process in self._open:
                if process.stdin:
                    try:
                        process.stdin.close()
                    except OSError:
                        pass


_LIFELINES = Lifelines()


def run_trial(task: Task, lifelines: Lifelines | None = None) -> Outcome:
    """Runs a trial up to its end, and again after a failure where the task allows it.

    Returns:
        What is also in result.json. Where the trial has a result already, that.
    """
    sweep = Folder(task["sweep"])
    earlier = sweep.result(task["number"])
    if earlier is not None:
        return earlier
    start_time = time.time()
    attempts = 0
    while True:
        attempts += 1
        outcome = _attempt(task, lifelines or _LIFELINES)
        if outcome["status"] != "failed" or attempts > task["retries"]:
            break
    outcome = {
        "number": task["number"],
        "status": outcome["status"],
        "params": task["params"],
        "value": outcome["metrics"].get(task["metric"]),
        "metrics": outcome["metrics"],
        "error": outcome.get("error"),
        "attempts": attempts,
        "began": start_time,
        "seconds": time.time() - start_time,
        "host": socket.gethostname(),
    }
    if outcome["status"] != "interrupted":
        sweep.record(outcome)
    return outcome


def _attempt(task: Task, lifelines: Lifelines) -> Outcome:
    folder = Path(task["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ATTEMPT).unlink(missing_ok=True)
    command = [sys.executable, "-I", _SUPERVISOR, str(task["limit"] or 0), str(folder)]
    # Not from the folder it runs in, which may have a file of the name of a module.
    command += [sys.executable, "-P", "-m", f"{__package__}.child"]
    process = lifelines.start(command, task["cwd"] if os.path.isdir(task["cwd"]) else None)
    if process is None:
        return {"status": "interrupted", "metrics": {}}
    try:
        assert process.stdin and process.stdout
        try:
            process.stdin.write(json.dumps(task) + "\n")
            process.stdin.flush()
            report = process.stdout.read()
        except (OSError, ValueError):  # cut while it was written
            report = ""
    finally:
        lifelines.done(process)
    if not report:
        if lifelines.cut:
            return {"status": "interrupted", "metrics": {}}
        return _failed("the process that watches over the trial was killed", folder)
    end = json.loads(report)
    if end["how"] == "limit":
        return _failed(f"not ended within {task['limit']:g} s, so it was killed", folder)
    if end["how"] == "locked":
        return _failed(f"another process still runs this trial in {folder}", folder)
    try:
        outcome: Outcome = json.loads((folder / ATTEMPT).read_bytes())
    except FileNotFoundError:
        code = end["code"]
        killed = code is not None and code < 0
        how = f"was killed by signal {-code}" if killed else f"ended with code {code}"
        return _failed(f"the process of the trial {how}", folder)
    (folder / ATTEMPT).unlink()
    return outcome


def _failed(why: str, folder: Path) -> Outcome:
    """With the last words of a trial that could not say itself how it went."""
    try:
        with (folder / "output.txt").open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _OUTPUT_BYTES))
            lines = file.read().decode(errors="replace").splitlines()[-_OUTPUT_LINES:]
    except OSError:
        lines = []
    return {"status": "failed", "metrics": {}, "error": "\n".join([why, *lines])}
