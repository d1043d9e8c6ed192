"""BatchNormalization(synchronized=True) of Keras on TensorFlow takes the moments of all ranks' batches."""

from __future__ import annotations

import functools
from typing import Any


def hook_moments(layer: type, method: str) -> None:
    """Has a layer combine the moments of its rank's batch with those of the others.

    Args:
        layer: A class whose instances have `synchronized`.
        method: Its method that takes inputs, and `mask` by name or second, and returns mean and variance.
    """
    import tensorflow as tf

    from ddl._updates import update
    from ddl.tensorflow._collectives import allreduce
    from ddl.tensorflow._world import distributed

    original = getattr(layer, method)

    @functools.wraps(original)
    def moments(self: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        mean, variance = original(self, inputs, *args, **kwargs)
        if not getattr(self, "synchronized", False) or update.inside or not distributed():
            return mean, variance
        mask = kwargs.get("mask", args[0] if len(args) == 1 else None)
        # Elements behind each mean, which may differ between the ranks.
        count = tf.cast(tf.size(inputs), tf.float32) / tf.cast(tf.size(mean), tf.float32)
        if mask is not None:
            count *= tf.reduce_mean(tf.cast(mask, tf.float32))
        local_mean, local_variance = tf.cast(mean, tf.float32), tf.cast(variance, tf.float32)
        sums = (
            tf.stack([local_mean, local_variance + tf.square(local_mean), tf.ones_like(local_mean)]) * count
        )
        total = allreduce(sums, "sum", f"moments of {getattr(self, 'path', None) or self.name}")
        all_mean, all_squares = (tf.math.divide_no_nan(part, total[2]) for part in (total[0], total[1]))
        all_variance = tf.maximum(all_squares - tf.square(all_mean), 0.0)
        return tf.cast(all_mean, mean.dtype), tf.cast(all_variance, variance.dtype)

    setattr(layer, method, moments)
