"""--variable_update=collective_all_reduce: TensorFlow's collective operators between the workers.

Each worker is a server. Operators of the same instance key meet; which runs of them belong together, the
workers find by a graph key, under which each counts its runs. So all must run what is under a key equally
often.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import tensorflow as tf

from tf_cnn_benchmarks.benchmark import Benchmark
from tf_cnn_benchmarks.cluster import peers
from tf_cnn_benchmarks.cluster.server import open_session
from tf_cnn_benchmarks.cluster.spec import WORKER, Cluster, task_device
from tf_cnn_benchmarks.cluster.task_queue import PUT_MS, TaskQueue
from tf_cnn_benchmarks.cluster.workers import ClusterWorkers
from tf_cnn_benchmarks.params import Params
from tf_cnn_benchmarks.workers import Array, GradientAndVariable

v1 = tf.compat.v1

GROUP = 1
TRAINING = 1
"""The graph key of the training steps; larger ones are of what is exchanged between them."""
EXCHANGE_MS = 3_600_000
TAKE_S = 2.0


def set_leader(config: Any) -> None:
    """Worker 0 answers which collectives belong together."""
    config.experimental.collective_group_leader = "/job:worker/replica:0/task:0"


class CollectiveWorkers(ClusterWorkers):
    """All workers, who meet in collective operators. `target` is this one's server."""

    def __init__(self, cluster: Cluster, target: str, config: Any) -> None:
        super().__init__(cluster)
        self._cluster = cluster
        self._target = target
        self._config = config
        self._instances = itertools.count(1)
        self._keys = itertools.count(TRAINING + 1)
        self._exchanges: dict[tuple[tuple[int, ...], str], tuple[Any, Any]] = {}

    def _sum(self, vector: Any, *, mean: bool) -> Any:
        return tf.raw_ops.CollectiveReduceV2(
            input=vector,
            group_size=self.size,
            group_key=GROUP,
            instance_key=next(self._instances),
            ordering_token=[],
            merge_op="Add",
            final_op="Div" if mean else "Id",
        )

    def mean_gradients(self, pairs: Sequence[GradientAndVariable]) -> list[GradientAndVariable]:
        """One collective for all gradients of a type: many are small, and each would make its own rounds."""
        if self.size == 1:
            return list(pairs)
        means: dict[int, Any] = {}
        for dtype in sorted({g.dtype.name for g, _ in pairs}):
            chosen = [i for i, (g, _) in enumerate(pairs) if g.dtype.name == dtype]
            vector = tf.concat([tf.reshape(pairs[i][0], [-1]) for i in chosen], 0)
            sizes = [int(pairs[i][0].shape.num_elements()) for i in chosen]
            for i, part in zip(chosen, tf.split(self._sum(vector, mean=True), sizes), strict=True):
                means[i] = tf.reshape(part, pairs[i][0].shape)
        return [(means[i], variable) for i, (_, variable) in enumerate(pairs)]

    def _exchange(self, array: Array) -> Array:
        """The sum over the workers, outside the training graph."""
        flat = np.ascontiguousarray(array).reshape(-1)
        key = (flat.shape, flat.dtype.name)
        if key not in self._exchanges:
            with tf.Graph().as_default() as graph, tf.device(f"{task_device(WORKER, self.rank)}/cpu:0"):
                values = v1.placeholder(flat.dtype, flat.shape)
                total = self._sum(values, mean=False)
            session = open_session(self._target, graph, self._config)
            options = v1.RunOptions(timeout_in_ms=EXCHANGE_MS)
            options.experimental.collective_graph_key = next(self._keys)
            self._exchanges[key] = (
                session.make_callable(total, feed_list=[values], accept_options=True),
                options,
            )
        run, options = self._exchanges[key]
        return np.asarray(run(flat, options=options)).reshape(array.shape)

    def mean(self, array: Array, name: str) -> Array:
        return array if self.size == 1 else self._exchange(array) / self.size

    def broadcast(self, array: Array, name: str) -> Array:
        if self.size == 1:
            return array
        array = np.asarray(array)
        return self._exchange(array if self.rank == 0 else np.zeros_like(array))

    def gather(self) -> None:
        """Returns when all have come here: from then on, one that is gone is done."""
        self._exchange(np.zeros(1, np.float32))

    def leave(self) -> None:
        """A worker serves what others still read of the last collective: nobody goes before all are done.

        Each tells worker 0, which answers when all have, and leaves last.
        """
        with tf.Graph().as_default() as graph:
            come, *answers = (TaskQueue(WORKER, 0, f"leave_{i}") for i in range(self.size))
            notice = come.put(self.rank)
            answer = tf.group([queue.put(1) for queue in answers])
        session = open_session(self._target, graph, self._config)
        within = v1.RunOptions(timeout_in_ms=PUT_MS)
        if self.rank:
            session.run(notice, options=within)
            self._take(session, answers[self.rank - 1], [(WORKER, 0)])
            # That the answer has come: worker 0 may go. If it has gone already, it knew.
            with suppress(tf.errors.OpError):
                session.run(notice, options=within)
            return
        self._all_come(session, come)
        session.run(answer, options=within)
        self._all_come(session, come)

    def _all_come(self, session: Any, come: TaskQueue) -> None:
        missing = set(range(1, self.size))
        while missing:
            missing.discard(self._take(session, come, [(WORKER, w) for w in sorted(missing)]))

    def _take(self, session: Any, queue: TaskQueue, whose: Sequence[peers.Task]) -> int:
        waiting = peers.Waiting(self._cluster, "finish the training")
        while (number := queue.take(session, TAKE_S)) is None:
            waiting.tick(whose)
        return number


class CollectiveBenchmark(Benchmark):
    """A worker's run: as that of a rank, in a session of its own server."""

    def __init__(
        self, params: Params, cluster: Cluster, workers: CollectiveWorkers, target: str, config: Any
    ) -> None:
        self._config = config
        home = task_device(WORKER, cluster.index)
        super().__init__(params, workers, cluster=cluster, target=target, home=home, graph_key=TRAINING)

    def _session_config(self) -> Any:
        return self._config
