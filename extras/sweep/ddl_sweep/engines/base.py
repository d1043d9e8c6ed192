"""What an engine does for the driver."""

from __future__ import annotations

from abc import ABC, abstractmethod

from ..worker import Outcome, Task


class Engine(ABC):
    """Runs trials, several at a time, each called for by a thread of its own."""

    @abstractmethod
    def start(self, at_once: int | None) -> int:
        """Makes what trials run on.

        Args:
            at_once: How many trials are wanted at the same time; None leaves that to the engine.

        Returns:
            How many trials run at the same time.
        """

    @abstractmethod
    def run(self, task: Task) -> Outcome:
        """Runs one trial up to its end.

        Raises:
            TrialLost: What ran it is gone; the trial may run again.
            SweepError: The engine itself is gone.
        """

    @abstractmethod
    def cancel(self) -> None:
        """Ends all trials that run; run() then returns outcomes with the status "interrupted"."""

    @abstractmethod
    def stop(self) -> None:
        """Releases what start() made."""


def interrupted(task: Task) -> Outcome:
    return {"number": task["number"], "status": "interrupted", "params": task["params"], "value": None}
