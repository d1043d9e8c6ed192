"""Trials as tasks of an array of Slurm's: no driver runs beside them, the journal holds all state."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence

from ddlrun.processes import run_bounded

from ..errors import SweepError
from ..study import Study
from ..worker import Outcome

_COMMAND_SECONDS = 60
#: How late the results of another host may show on a shared file system.
_LATE_SECONDS = 15.0


class Slurm:
    """Arrays of Slurm.

    Args:
        options: Of sbatch, for each trial, such as ["--time=30", "--gres=gpu:1"].
    """

    def __init__(self, options: Sequence[str] = ()) -> None:
        self.options = list(options)

    def submit(self, study: Study, numbers: Sequence[int], at_once: int | None) -> str:
        """Submits an array of the trials with these numbers; the number of its job."""
        logs = study.folder / "slurm"
        logs.mkdir(exist_ok=True)
        array = ranges(numbers) + (f"%{at_once}" if at_once else "")
        task = [sys.executable, "-P", "-m", "ddl_sweep", "trial", str(study.folder)]
        # sbatch reads % in the name; a folder with one would be read, too.
        command = ["sbatch", "--parsable", f"--array={array}", "--job-name=sweep"]
        command += [f"--output={str(logs).replace('%', '%%')}/%A_%a.txt", *self.options]
        command += ["--wrap", f'exec {shlex.join(task)} "$SLURM_ARRAY_TASK_ID"']
        job = _run(command).strip().partition(";")[0]
        study.optuna.set_user_attr("slurm", {"job": job, "command": command})
        return job


def wait(study: Study, numbers: Sequence[int], job: str, ended: Callable[[Outcome], None]) -> None:
    """Waits for an array, and passes every outcome on when it appears.

    Raises:
        SweepError: The array is over, and some trials have no result.
    """
    remaining = set(numbers)
    over: float | None = None
    while True:
        outcomes = study.outcomes()
        for number in sorted(remaining & outcomes.keys()):
            remaining.remove(number)
            ended(outcomes[number])
        if not remaining:
            return
        if over is None and not _in_queue(job):
            over = time.monotonic()
        if over is not None and time.monotonic() - over > _LATE_SECONDS:
            raise SweepError(
                f"job {job} is over, and trials {ranges(remaining)} have no result; see "
                f"{study.folder}/slurm, and run the sweep again to run them"
            )
        time.sleep(0.5)


def ranges(numbers: Iterable[int]) -> str:
    """0,1,2,5 as 0-2,5."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{low}" if low == high else f"{low}-{high}" for low, high in runs)


def cancel(job: str) -> None:
    _run(["scancel", job])


def _in_queue(job: str) -> bool:
    try:
        return bool(_run(["squeue", "-h", "-j", job, "-o", "%i"]).strip())
    except SweepError as error:
        if "Invalid job id" in str(error):  # it is over for long
            return False
        raise


def _run(command: list[str]) -> str:
    try:
        done = run_bounded(command, "", _COMMAND_SECONDS)
    except FileNotFoundError:
        raise SweepError(
            f"no {command[0]} here; run this on a host with Slurm's commands, or take another engine"
        ) from None
    except subprocess.TimeoutExpired:
        raise SweepError(
            f"{command[0]} gave no answer within {_COMMAND_SECONDS} s; is slurmctld up?"
        ) from None
    if done.returncode:
        raise SweepError(
            f"{' '.join(command)} ended with code {done.returncode}: {(done.stderr or done.stdout).strip()}"
        )
    return done.stdout
