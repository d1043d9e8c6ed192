"""The processes of one trial: a supervisor, and the trial itself.

    python -m ddl_sweep.trial_process

The starter writes the task, a line of JSON, and keeps the pipe open: its end is the starter's end, however
that came. The supervisor ends the trial with all that it has started: at its end, after its limit, or with
the starter. How the trial went is a line of JSON on standard output; what it prints goes to output.txt in its
folder. No two supervisors work in a folder at the same time.

The trial has a process of its own: it can be ended, may crash, and gives back all memory, that of GPUs, too.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ddlrun import processes

from .errors import SweepError
from .metrics import printed, returned
from .objective import filled, takes_trial, unpickled
from .trial import Trial
from .worker import Outcome, Task, failed

#: How long a trial that has got SIGTERM may take for its end.
GRACE_SECONDS = 5.0
_LOCK_SECONDS = 4 * GRACE_SECONDS
_LAST_LINES = 20
_LAST_CHARACTERS = 4000
_OUTPUT_LINES = 10
_OUTPUT_BYTES = 2000


# ---- the supervisor


def main() -> None:
    data = b""
    while not data.endswith(b"\n"):
        part = os.read(0, 1 << 20)
        if not part:
            return  # the starter is gone already
        data += part
    task: Task = json.loads(data)
    folder = Path(task["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "supervisor.lock").open("a") as lock, tempfile.TemporaryFile("w+") as report:
        if not _locked(lock.fileno()):
            print(json.dumps({"status": "locked"}), flush=True)
            return
        processes.adopt_orphans()
        wake, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(woken)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # Who kills this process, which has one thread, kills the trial, too.
        die_with_parent = processes.die_with_parent(signal.SIGKILL)
        child = os.fork()
        if child == 0:
            _run(task, folder, report, die_with_parent)
            return
        end, code = _watch(child, wake, task["limit"])
        report.seek(0)
        if end == "orphaned":
            return
        if end == "limit":
            outcome = failed(f"not ended within {task['limit']:g} s, so it was killed{_last_output(folder)}")
        else:
            how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
            why = f"the process of the trial {how}{_last_output(folder)}"
            outcome = json.loads(report.read() or "null") or failed(why)
        print(json.dumps(outcome), flush=True)


def _locked(lock: int) -> bool:
    """Waits for an earlier supervisor, whose starter was just killed. The lock ends with this process."""
    end = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > end:
                return False
            time.sleep(0.05)


def _watch(child: int, wake: int, limit: float | None) -> tuple[str, int]:
    """Waits for the child, its limit or the starter's end, and ends all that comes from the child."""
    start_time = time.monotonic()
    end, codes = "", processes.reap()
    while not end:
        remaining = max(0.0, start_time + limit - time.monotonic()) if limit else None
        ready, _, _ = select.select([0, wake], [], [], remaining)
        if wake in ready:
            os.read(wake, 4096)
        codes |= processes.reap()
        if child in codes:
            end = "ended"
        elif 0 in ready and not os.read(0, 4096):
            end = "orphaned"
        elif limit and time.monotonic() - start_time >= limit:
            end = "limit"
    codes |= processes.end_descendants([-child], GRACE_SECONDS)
    return end, codes.get(child, 0)


def _last_output(folder: Path) -> str:
    """The last words of a trial that could not say itself how it went."""
    with (folder / "output.txt").open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _OUTPUT_BYTES))
        lines = file.read().decode(errors="replace").splitlines()[-_OUTPUT_LINES:]
    return "".join(f"\n{line}" for line in lines)


# ---- the trial


def _run(task: Task, folder: Path, report: Any, die_with_parent: Callable[[], None]) -> None:
    os.setsid()
    die_with_parent()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with (folder / "output.txt").open("ab") as output, open(os.devnull) as nothing:
        for stream, file in enumerate((nothing, output, output)):
            os.dup2(file.fileno(), stream)
    outcome: Outcome
    try:
        trial = Trial(task)
        metrics = (_program if "program" in task["objective"] else _function)(task, trial)
        status = "pruned" if trial.stopped else "done"
        outcome = {"status": status, "value": metrics.get(task["metric"]), "metrics": metrics, "error": None}
    except BaseException as error:
        text = traceback.format_exc() if not isinstance(error, SweepError) else str(error)
        sys.stderr.write(text)
        outcome = failed("\n".join(text.rstrip().splitlines()[-_LAST_LINES:])[-_LAST_CHARACTERS:])
    json.dump(outcome, report)
    report.flush()


def _program(task: Task, trial: Trial) -> dict[str, float]:
    command = filled(task["objective"]["program"], trial.params, str(trial.folder), trial.number)
    try:
        code, output = processes.run_echoed(command)
    except OSError as error:
        raise SweepError(f"{command[0]} cannot be started: {error.strerror}; give its path") from None
    if code:
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        last_lines = "".join(output[-_LAST_LINES:]).rstrip()
        last_line = last_lines.rpartition("\n")[2] or "it said nothing"
        raise SweepError(f"{command[0]} {how}: {last_line}\n{last_lines}".rstrip())
    return returned(printed("".join(output)), task["metric"])


def _function(task: Task, trial: Trial) -> dict[str, float]:
    objective = task["objective"]
    sys.path += [entry for entry in objective["path"] if entry not in sys.path]
    train = unpickled(objective["pickle"])
    try:
        value = train(trial) if takes_trial(train) else train(**trial.params)
    except BaseException as error:
        # Optuna's way to say that a trial is given up, which examples of it use.
        if type(error).__name__ != "TrialPruned":
            raise
        trial.stopped = True
        return {}
    return returned(value, task["metric"])


if __name__ == "__main__":
    main()
