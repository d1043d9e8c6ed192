"""Trials as processes of this machine."""

from __future__ import annotations

import os
import threading

from ..worker import Outcome, Task, run_trial


class Local:
    """Processes of this machine, by default as many as it has cores for us."""

    def __init__(self) -> None:
        self._stop = threading.Event()

    def start(self, at_once: int | None) -> int:
        """Makes what trials run on; how many run at the same time, where at_once leaves that open."""
        return at_once or len(os.sched_getaffinity(0))

    def run(self, task: Task) -> Outcome | None:
        """Runs one trial up to its end, in a thread of its own; None after cancel().

        Raises:
            TrialLost: What ran it is gone; the trial may run again.
            SweepError: The engine itself is gone.
        """
        return run_trial(task, self._stop)

    def cancel(self) -> None:
        """Ends all trials that run."""
        self._stop.set()

    def stop(self) -> None:
        """Releases what start() made."""
