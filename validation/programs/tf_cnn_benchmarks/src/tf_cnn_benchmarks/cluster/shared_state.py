"""What the workers agree by, kept on parameter server 0, and the gradients that they lay down there.

Each worker has a place of its own for its gradient of each variable, on that variable's server, and a mark
that says for which step they are. Worker 0 takes the mean when all marks are there. To write a place again
changes nothing: a worker that was started again makes its step once more, and no gradient counts twice.
Queues only wake who waits; what counts is in the marks and in the step count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_cnn_benchmarks.checkpoint import canonical_name
from tf_cnn_benchmarks.cluster.placement import FIRST
from tf_cnn_benchmarks.variable_update import Pairs

v1 = tf.compat.v1

NOBODY = -1


class Cell:
    """A value on a server, by name, that every worker finds; not in checkpoints."""

    def __init__(self, name: str, shape: Sequence[int], dtype: Any, device: str = FIRST) -> None:
        self._dtype = dtype
        self._device = device
        with tf.device(device):
            self._handle = tf.raw_ops.VarHandleOp(
                dtype=dtype, shape=list(shape), shared_name=name, container=""
            )

    def write(self, value: Any) -> Any:
        with tf.device(self._device):
            return tf.raw_ops.AssignVariableOp(resource=self._handle, value=tf.cast(value, self._dtype))

    def read(self) -> Any:
        with tf.device(self._device):
            return tf.raw_ops.ReadVariableOp(resource=self._handle, dtype=self._dtype)


class Bell:
    """Wakes one task that waits."""

    def __init__(self, name: str) -> None:
        with tf.device(FIRST):
            self._queue = v1.FIFOQueue(-1, [tf.bool], shapes=[[]], shared_name=name)

    def ring(self) -> Any:
        with tf.device(FIRST):
            return self._queue.enqueue(True)

    def heard(self) -> Any:
        """Waits for a ring, and forgets all that there were."""
        with tf.device(FIRST):
            return self._queue.dequeue_many(tf.maximum(self._queue.size(), 1)).op


class SharedState:
    """job: [generation, first timed step, last step]. A generation is a history of the variables: worker 0
    begins a new one when it sets them, and what was computed in an older one counts for nothing. 0: they are
    being set. begun: the step that is being applied; when it is not the step count, half a step is in the
    variables. over: the generation that has been finished."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.job = Cell("job", [3], tf.int64)
        self.begun = Cell("begun", [], tf.int64)
        self.over = Cell("over", [], tf.int64)
        self.marks = [Cell(f"mark_{w}", [2], tf.int64) for w in range(workers)]
        self._measures = [Cell(f"measures_{w}", [4], tf.float32) for w in range(workers)]
        self.arrivals = Bell("arrivals")
        self.releases = [Bell(f"release_{w}") for w in range(workers)]

    def lay_down(self, worker: int, mark: Any, pairs: Pairs, measures: Any, others: Sequence[Any]) -> Any:
        """The operator of a worker's part of a step: gradients and measures, then the mark, then the bell."""
        laid = [self._place(worker, g, v).write(g) for g, v in pairs]
        laid += [self._measures[worker].write(measures), *others]
        with tf.control_dependencies(laid):
            marked = self.marks[worker].write(mark)
        with tf.control_dependencies([marked]):
            return self.arrivals.ring()

    def mean_pairs(self, pairs: Pairs) -> Pairs:
        """The mean of what all workers have laid down, each on its variable's server."""
        means = []
        for gradient, variable in pairs:
            places = [self._place(w, gradient, variable).read() for w in range(self.workers)]
            with tf.device(variable.device):
                means.append((tf.reshape(tf.add_n(places) / self.workers, variable.shape), variable))
        return means

    def measures(self) -> Any:
        """[loss, top-1, top-5, images]: the mean loss and the sums."""
        stacked = tf.stack([cell.read() for cell in self._measures])
        return tf.concat([tf.reduce_mean(stacked[:, :1], 0), tf.reduce_sum(stacked[:, 1:], 0)], 0)

    def read_marks(self) -> Any:
        return tf.stack([mark.read() for mark in self.marks])

    def clear(self) -> list[Any]:
        """Nobody has laid down anything."""
        return [mark.write([NOBODY, NOBODY]) for mark in self.marks]

    @staticmethod
    def _place(worker: int, gradient: Any, variable: Any) -> Cell:
        name = f"gradient_{worker}/{canonical_name(variable)}"
        return Cell(name, variable.shape.as_list(), gradient.dtype, variable.device)
