"""Trials as tasks of an array of Slurm's: no driver runs beside them, the folder holds all state."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence

from ddlrun.processes import run_bounded

from ..errors import SweepError
from ..folder import Folder, write_json, write_whole
from ..worker import Outcome

#: Nothing is put into the script: Python and the folder are its arguments.
_SCRIPT = b"""#!/bin/sh
exec "$1" -P -m ddl_sweep trial "$2" "$SLURM_ARRAY_TASK_ID"
"""
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


def submit(folder: Folder, numbers: Sequence[int], at_once: int | None, slurm: Slurm) -> str:
    """Submits an array of the trials with these numbers.

    Returns:
        The number of the job.
    """
    script = folder.path / "array.sh"
    write_whole(script, _SCRIPT)
    logs = folder.path / "slurm"
    logs.mkdir(exist_ok=True)
    array = ranges(numbers) + (f"%{at_once}" if at_once else "")
    # sbatch reads % in the name; a folder with one would be read, too.
    command = ["sbatch", "--parsable", f"--array={array}", "--job-name=sweep"]
    command += [f"--output={str(logs).replace('%', '%%')}/%A_%a.txt", *slurm.options]
    command += [str(script), sys.executable, str(folder.path)]
    job = _run(command).strip().partition(";")[0]
    write_json(folder.path / "slurm.json", {"job": job, "trials": list(numbers), "command": command})
    return job


def ranges(numbers: Iterable[int]) -> str:
    """0,1,2,5 as 0-2,5."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{low}" if low == high else f"{low}-{high}" for low, high in runs)


def wait(folder: Folder, numbers: Sequence[int], job: str, ended: Callable[[Outcome], None]) -> None:
    """Waits for an array, and passes every result on when it appears.

    Raises:
        SweepError: The array is over, and some trials have no result.
    """
    remaining = set(numbers)
    over: float | None = None
    while remaining:
        for number in sorted(remaining):
            result = folder.result(number)
            if result is not None:
                remaining.remove(number)
                ended(result)
        if over is None and remaining and not _in_queue(job):
            over = time.monotonic()
        if over is not None and remaining and time.monotonic() - over > _LATE_SECONDS:
            raise SweepError(
                f"job {job} is over, and trials {ranges(remaining)} have no result; see {folder.path}/slurm, "
                "and run the sweep again to run them"
            )
        if remaining:
            time.sleep(0.5)


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
