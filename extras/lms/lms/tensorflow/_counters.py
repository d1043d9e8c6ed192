"""What was moved to the host and back, counted by the graph itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import tensorflow as tf
from tensorflow.python.ops.resource_variable_ops import ResourceVariable


@dataclass(frozen=True)
class Stats:
    """What blocks with offload have moved out and, for the backward pass, in again."""

    moved: int = 0
    """Bytes each way."""
    tensors: int = 0


class Counters:
    """The counters of one offloaded layer, function or model."""

    def __init__(self) -> None:
        # No tf.Variable, of which a strategy would make copies.
        with tf.init_scope(), tf.device("/CPU:0"):
            self._bytes = ResourceVariable(0, dtype=tf.int64, trainable=False, name="lms_bytes")
            self._tensors = ResourceVariable(0, dtype=tf.int64, trainable=False, name="lms_tensors")
        with _lock:
            _all.append(self)

    def add(self, tensors: Sequence[Any]) -> Any:
        """An operation, or in eager mode its effect, that counts the tensors."""
        with tf.device("/CPU:0"):
            sizes = [tf.size(tensor, out_type=tf.int64) * tensor.dtype.size for tensor in tensors]
            return tf.group(
                self._bytes.assign_add(tf.add_n(sizes)),
                self._tensors.assign_add(tf.constant(len(tensors), tf.int64)),
            )

    def read(self) -> tuple[int, int]:
        return int(self._bytes.numpy()), int(self._tensors.numpy())

    def reset(self) -> None:
        self._bytes.assign(0)
        self._tensors.assign(0)


_all: list[Counters] = []
_lock = Lock()


def stats() -> Stats:
    """What was moved since the start or reset_stats()."""
    with _lock:
        read = [counters.read() for counters in _all]
    return Stats(sum(each for each, _ in read), sum(number for _, number in read))


def reset_stats() -> None:
    """Starts stats() anew."""
    with _lock:
        for counters in _all:
            counters.reset()
