"""Event files for TensorBoard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from tf_cnn_benchmarks.checkpoint import canonical_name
from tf_cnn_benchmarks.errors import BenchmarkError

v1 = tf.compat.v1

GRADIENTS, VARIABLES = 2, 3
"""From which --summary_verbosity on."""


def summary_of(verbosity: int, loss_name: str, loss: Any, rate: Any, pairs: Sequence[tuple[Any, Any]]) -> Any:
    """One tensor with a step's summaries; `pairs` are (gradient, variable) as they are applied."""
    with tf.device("/cpu:0"):
        parts = [v1.summary.scalar(loss_name, loss), v1.summary.scalar("learning_rate", rate)]
        for gradient, variable in pairs:
            name = canonical_name(variable)
            if verbosity >= GRADIENTS:
                parts.append(_histogram(f"{name}/gradients", gradient))
            if verbosity >= VARIABLES:
                parts.append(_histogram(name, variable.read_value()))
        return v1.summary.merge(parts)


def _histogram(tag: str, values: Any) -> Any:
    """Under this very name; v1.summary would number one that a variable's scope has already."""
    return tf.raw_ops.HistogramSummary(tag=tag, values=values)


class Events:
    """Writes an event file into `folder`; `flag` is what named it."""

    def __init__(self, folder: Path, flag: str) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._writer = v1.summary.FileWriter(str(folder))
        except (OSError, tf.errors.OpError) as error:
            reason = getattr(error, "strerror", None) or error
            raise BenchmarkError(f"cannot write to --{flag}={folder}: {reason}; name another") from None

    def add(self, summary: bytes, step: int) -> None:
        """Adds a serialized summary."""
        self._writer.add_summary(summary, step)
        self._writer.flush()

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Adds numbers by name."""
        pairs = [v1.Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self.add(v1.Summary(value=pairs).SerializeToString(), step)
