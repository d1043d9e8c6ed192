"""Words between tasks: a queue of numbers on one of them."""

from __future__ import annotations

import time
from typing import Any

import tensorflow as tf

from tf_cnn_benchmarks.cluster import peers
from tf_cnn_benchmarks.cluster.spec import task_device

v1 = tf.compat.v1

PUT_MS = 30_000
"""So long a task that answers may take for one word."""


class TaskQueue:
    """The queue `name` on a task, in the graph that is being built. Every task may put numbers into it; one
    alone takes them.
    """

    def __init__(self, job: str, index: int, name: str) -> None:
        with tf.device(f"{task_device(job, index)}/cpu:0"):
            self._queue = v1.FIFOQueue(-1, [tf.int64], shapes=[[]], shared_name=name)
            self._size = self._queue.size()
            self._taken = self._queue.dequeue()

    def put(self, number: int) -> Any:
        """The operator that puts it there; run it within PUT_MS."""
        return self._queue.enqueue(tf.constant(number, tf.int64))

    def take(self, session: Any, within: float) -> int | None:
        """The next number; None if none comes within so many seconds.

        It is taken only when it is there: TensorFlow may cancel a dequeue that has a limit after it has taken
        an element, which is then lost.
        """
        until = time.monotonic() + within
        while not session.run(self._size):
            if time.monotonic() > until:
                return None
            time.sleep(min(peers.POLL_S, within))
        return int(session.run(self._taken))
