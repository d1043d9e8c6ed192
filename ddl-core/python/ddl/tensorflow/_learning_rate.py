"""The learning rate of many ranks: that of one process times their number, reached gradually."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

import ddl


def warmup_learning_rate(
    learning_rate: float, step: Any, warmup_steps: int, multiplier: float | None = None
) -> Any:
    """The learning rate as a function of the step, for TF1 graphs and training loops.

    Rises in a straight line from `learning_rate` at step 0 to `learning_rate * multiplier` at
    `warmup_steps`, and stays there. A large rate is of use for a large batch, but not for the first steps,
    when the weights still change quickly (Goyal et al. 2017, "Accurate, large minibatch SGD").

    Args:
        learning_rate: The one that is right for a single process with its part of the batch.
        step: The global step: a number, tensor or variable.
        warmup_steps: 0 starts with the full rate.
        multiplier: By default size().

    Returns:
        A scalar float32 tensor.
    """
    if warmup_steps < 0:
        raise ValueError(f"warmup_learning_rate: warmup_steps is {warmup_steps}; it cannot be negative")
    factor = float(ddl.size() if multiplier is None else multiplier)
    if warmup_steps == 0:
        return tf.constant(learning_rate * factor, tf.float32)
    progress = tf.minimum(tf.cast(step, tf.float32) / float(warmup_steps), 1.0)
    return learning_rate * (1.0 + (factor - 1.0) * progress)
