"""Waiting for other tasks: with a line that names who is waited for, and a limit."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Sequence

from tf_cnn_benchmarks.cluster.spec import Cluster
from tf_cnn_benchmarks.errors import BenchmarkError

NOTICE_S = 20.0
"""After which a wait is told, and then told again each time it has doubled."""
LOST_S = 600.0
"""A task that accepts no connection for so long is given up. Time enough to start it again."""
HUNG_S = 3600.0
"""A task that accepts connections and does nothing else for so long."""
CONNECT_S = 2.0
POLL_S = 0.2

Task = tuple[str, int]
"""Job and index."""


def answers(address: str) -> bool:
    """Whether somebody listens there."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S):
            return True
    except OSError:
        return False


class Waiting:
    """One wait of `cluster.task` for other tasks, to `what` (such as "compute step 7").

    `tick` is called again and again with those still missing. A task that is there may take its time; one
    that is not must come back within LOST_S.
    """

    def __init__(self, cluster: Cluster, event: str) -> None:
        self._cluster = cluster
        self._what = event
        self._begun = time.monotonic()
        self._answered: dict[Task, float] = {}
        self._notice = NOTICE_S

    def tick(self, missing: Sequence[Task]) -> None:
        """Prints a line when it is time to; BenchmarkError when the limit is over."""
        now = time.monotonic()
        absent = [task for task in missing if not answers(self._cluster.jobs[task[0]][task[1]])]
        for task in missing:
            if task not in absent:
                self._answered[task] = now
        names = ", ".join(self._cluster.named(*task) for task in missing)
        lost = [task for task in absent if now - self._answered.get(task, self._begun) > LOST_S]
        if lost or now - self._begun > HUNG_S:
            who = ", ".join(self._cluster.named(*task) for task in lost) or names
            seconds = f"{LOST_S:g} s" if lost else f"{HUNG_S:g} s, though it accepts connections"
            raise BenchmarkError(
                f"{who} did not {self._what} within {seconds}; see its output, and start the job again "
                "(with --train_dir it continues from the newest checkpoint)"
            )
        if now - self._begun > self._notice:
            self._notice *= 2
            gone = ", ".join(self._cluster.named(*task) for task in absent)
            say(
                f"{self._cluster.task} waits since {now - self._begun:.0f} s for {names} to {self._what}"
                + (f"; no answer from {gone}" if gone else "")
            )


def say(text: str) -> None:
    print(f"tf_cnn_benchmarks: {text}", file=sys.stderr, flush=True)


def await_tasks(cluster: Cluster, tasks: Sequence[Task]) -> None:
    """Wait until all of them listen."""
    waiting = Waiting(cluster, "start")
    while missing := absent_of(cluster, tasks):
        waiting.tick(missing)
        time.sleep(POLL_S)


def absent_of(cluster: Cluster, tasks: Sequence[Task]) -> list[Task]:
    """The tasks that accept no connection."""
    return [task for task in tasks if not answers(cluster.jobs[task[0]][task[1]])]
