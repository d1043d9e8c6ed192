"""Notices that a task of an all-reduce has gone.

TensorFlow does not tell: a collective operator waits without end for a worker that has not begun it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence

from tf_cnn_benchmarks.cluster import peers
from tf_cnn_benchmarks.cluster.spec import Cluster

GONE_S = 20.0
"""A task that accepts no connection for so long is lost; a link needs less to come back."""
LOOK_S = 1.0


def lost_text(cluster: Cluster, gone: Sequence[peers.Task], why: str) -> str:
    names = ", ".join(cluster.named(*task) for task in gone)
    return (
        f"{names} was lost ({why}); an all-reduce needs all workers: start the job again "
        "(ddlrun -max-restarts does); with --train_dir it continues from the newest checkpoint"
    )


class Watch:
    """Ends this process, with a line that names the task, when one of `tasks` has gone. `stop` when tasks may
    end."""

    def __init__(self, cluster: Cluster, tasks: Sequence[peers.Task]) -> None:
        self._cluster = cluster
        self._tasks = list(tasks)
        self._stopped = threading.Event()
        threading.Thread(target=self._look, daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _look(self) -> None:
        answered = dict.fromkeys(self._tasks, time.monotonic())
        while not self._stopped.wait(LOOK_S):
            absent = peers.absent_of(self._cluster, self._tasks)
            now = time.monotonic()
            answered |= {task: now for task in self._tasks if task not in absent}
            gone = [task for task in absent if now - answered[task] > GONE_S]
            if gone and not self._stopped.is_set():
                text = lost_text(self._cluster, gone, f"no connection for {GONE_S:g} s")
                peers.say(f"error: {self._cluster.task}: {text}")
                sys.stdout.flush()
                # The main thread is in TensorFlow, which cannot be interrupted.
                os._exit(1)
