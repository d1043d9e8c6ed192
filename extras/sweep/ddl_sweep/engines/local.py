"""Trials as processes of this machine."""

from __future__ import annotations

import os

from ..worker import Lifelines, Outcome, Task, run_trial
from .base import Engine


class Local(Engine):
    """Processes of this machine, by default as many as it has cores for us."""

    def __init__(self) -> None:
        self._lifelines = Lifelines()

    def start(self, at_once: int | None) -> int:
        return at_once or len(os.sched_getaffinity(0))

    def run(self, task: Task) -> Outcome:
        return run_trial(task, self._lifelines)

    def cancel(self) -> None:
        self._lifelines.cut_all()

    def stop(self) -> None:
        pass
