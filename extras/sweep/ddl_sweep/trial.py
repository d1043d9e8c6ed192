"""A trial as the function sees it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddlrun import processes, rank_variables

from .errors import SweepError
from .metrics import number, printed
from .worker import Task

#: Where ddlrun finds the hosts of a scheduler's job.
_OF_A_SCHEDULER = ("SLURM_", "LSB_", "PBS_", "FLUX_")
_LAST_LINES = 15


@dataclass(frozen=True)
class Job:
    """What a job of ddlrun gave: the last number of every `name: number` line, and all that it printed."""

    metrics: dict[str, float]
    output: str


class Trial:
    """One trial.

    Attributes:
        params: The values of the parameters, by name.
        number: 0, 1, 2, …
        folder: Its own folder, which is there, and is kept when the sweep is continued.
        hosts: The hosts of its job, where the engine says; see ddlrun().
    """

    def __init__(self, task: Task) -> None:
        self.params: dict[str, Any] = task["params"]
        self.number: int = task["number"]
        self.folder = Path(task["folder"]) / "files"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.hosts: Sequence[str] | str | None = task["hosts"]
        self.stopped = False
        self._task = task
        self._study_trial: Any = None

    def report(self, step: int, value: Any) -> None:
        """Tells how far the trial is; pruners decide by it.

        Args:
            step: The epoch, or another count that grows.
            value: What is optimized, as it is now.
        """
        try:
            measured = number(value)
        except ValueError:
            return  # no pruner can compare it
        trial = self._optuna()
        if trial is not None:
            trial.report(measured, int(step))

    def should_stop(self) -> bool:
        """Whether the pruner of the sweep gives the trial up after its last report; False without a pruner.

        Return what was reached then: the trial counts as pruned, and is never the best.
        """
        if self._task["pruner"] is not None and self._optuna().should_prune():
            self.stopped = True
        return self.stopped

    def ddlrun(self, words: Sequence[str], ranks: int | None = None, options: Sequence[str] = ()) -> Job:
        """Runs a program as a job of ddlrun, and waits for it.

        Where it runs: on the hosts of the barrier's tasks with Spark(barrier_ranks=…), on the hosts of the
        array's task in Slurm, else on this machine.

        Args:
            words: The program and its arguments, as one would type them behind `ddlrun`, each a word.
            ranks: Their number; default: one a slot of the hosts, on this machine one.
            options: More options of ddlrun, such as ["-timeout", "600"].

        Returns:
            What it printed, and the numbers in it.

        Raises:
            SweepError: The job failed; the text ends with its last lines.
        """
        beside = Path(sys.prefix) / "bin/ddlrun"
        line = [str(beside)] if beside.exists() else [sys.executable, "-P", "-m", "ddlrun"]
        environment = rank_variables.without(os.environ)
        if self.hosts is None:
            line += ["-H", f"localhost:{ranks or 1}"]
        elif not isinstance(self.hosts, str):
            line += ["-H", ",".join(self.hosts)]
        if not isinstance(self.hosts, str):  # "job": those that the scheduler says
            environment = {
                name: value for name, value in environment.items() if not name.startswith(_OF_A_SCHEDULER)
            }
        if self.hosts is not None and ranks is not None:
            line += ["-np", str(ranks)]
        line += [*options, *words]
        # Not in a session of its own: ddlrun ends, with its ranks, when the trial is ended.
        code, output = processes.run_echoed(line, environment)
        if code:
            last = "".join(output[-_LAST_LINES:]).rstrip()
            raise SweepError(f"ddlrun {' '.join(words)} ended with code {code}; it said:\n{last}")
        return Job(printed("".join(output)), "".join(output))

    def _optuna(self) -> Any:
        """The trial in the journal; None where this host does not see the journal, and no pruner needs it."""
        visible = os.path.exists(self._task["journal"])
        if self._study_trial is None and (visible or self._task["pruner"] is not None):
            from .study import running_trial

            self._study_trial = running_trial(self._task)
        return self._study_trial
