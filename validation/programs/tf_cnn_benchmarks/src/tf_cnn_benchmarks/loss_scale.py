"""The factor of the loss with --use_fp16, fixed or adapted to what the gradients can bear.

Small gradients vanish in float16. They are computed of the loss times a factor, which is divided out in
float32 (Micikevicius et al., "Mixed precision training", arXiv:1710.03740, section 3.2). A factor that
adapts is halved when a gradient overflows and doubled after many steps in which none did.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_cnn_benchmarks.models import Model
from tf_cnn_benchmarks.params import Params

v1 = tf.compat.v1

SMALLEST = 1.0


class LossScale:
    """`factor` is a number, or with --fp16_enable_auto_loss_scale a tensor of the step's."""

    def __init__(self, params: Params, model: Model) -> None:
        first = (params.fp16_loss_scale or model.loss_scale) if params.use_fp16 else 1.0
        self.factor: Any = first
        self._every = params.fp16_inc_loss_scale_every_n
        self.adapts = params.training and params.fp16_enable_auto_loss_scale
        if self.adapts:
            with tf.device("/cpu:0"):
                self._scale = _counter("loss_scale", first, tf.float32)
                self._good_steps = _counter("loss_scale_normal_steps", 0, tf.int64)
                self.factor = self._scale.read_value()

    def apply(self, gradients: Sequence[Any], apply: Callable[[], list[Any]]) -> list[Any]:
        """The operators of a step that applies `gradients`, which are the exchanged ones and so equal on all
        ranks; with a factor that adapts, they are applied only if all are finite."""
        if not self.adapts:
            return apply()
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(gradient)) for gradient in gradients])

        def applied() -> Any:
            with tf.control_dependencies(apply()):
                return tf.constant(True)

        done = v1.cond(finite, applied, lambda: tf.constant(False))
        # The factor of this step has been read by all that use it before it changes.
        with tf.device("/cpu:0"), tf.control_dependencies([done]):
            good = self._good_steps.read_value() + 1
            grows = good >= self._every
            larger = tf.where(grows, self.factor * 2.0, self.factor)
            smaller = tf.maximum(self.factor / 2.0, SMALLEST)
            return [
                self._scale.assign(tf.where(finite, larger, smaller), read_value=False),
                self._good_steps.assign(
                    tf.where(tf.logical_and(finite, tf.logical_not(grows)), good, tf.zeros_like(good)),
                    read_value=False,
                ),
            ]


def _counter(name: str, value: float, dtype: Any) -> Any:
    return v1.get_variable(
        name,
        [],
        dtype,
        initializer=v1.constant_initializer(value),
        trainable=False,
        use_resource=True,
    )
