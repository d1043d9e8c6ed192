"""The process of one trial: reads its task from standard input, writes how it went to a file.

Each trial has a process of its own: it can be ended, may crash, and gives back all memory, that of GPUs, too.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from typing import Any

from ddlrun import processes

from .errors import SweepError
from .folder import ATTEMPT, write_json
from .metrics import printed, returned
from .objective import filled, takes_trial, unpickled
from .trial import Trial

_LAST_LINES = 20
_LAST_CHARACTERS = 4000


def _program(task: dict[str, Any], trial: Trial) -> dict[str, Any]:
    command = filled(task["objective"]["program"], trial.params, str(trial.folder), trial.number)
    try:
        code, output = processes.run_echoed(command)
    except OSError as error:
        raise SweepError(f"{command[0]} cannot be started: {error.strerror}; give its path") from None
    text = "".join(output)
    if code:
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        last_lines = "".join(output[-_LAST_LINES:]).rstrip()
        raise SweepError(
            f"{command[0]} {how}: {last_line(last_lines) or 'it said nothing'}\n{last_lines}".rstrip()
        )
    return returned(printed(text), task["metric"])


def _function(task: dict[str, Any], trial: Trial) -> dict[str, Any]:
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


def last_line(text: str) -> str:
    return text.rstrip().rpartition("\n")[2]


def main() -> None:
    task: dict[str, Any] = json.loads(sys.stdin.read())
    folder = Path(task["folder"])
    trial = Trial(task["params"], task["number"], folder, task.get("hosts"), task.get("pruning"))
    outcome: dict[str, Any]
    try:
        metrics = (_program if "program" in task["objective"] else _function)(task, trial)
        outcome = {"status": "pruned" if trial.stopped else "done", "metrics": metrics}
    except BaseException as error:
        text = traceback.format_exc() if not isinstance(error, SweepError) else str(error)
        sys.stderr.write(text)
        last = "\n".join(text.rstrip().splitlines()[-_LAST_LINES:])[-_LAST_CHARACTERS:]
        outcome = {"status": "failed", "metrics": {}, "error": last}
    write_json(folder / ATTEMPT, outcome)


if __name__ == "__main__":
    main()
