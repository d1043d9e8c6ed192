"""The learning rate as a function of the step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import tensorflow as tf

from tf_cnn_benchmarks.models import Model
from tf_cnn_benchmarks.params import Params
from tf_cnn_benchmarks.piecewise import parse_piecewise


def learning_rate(params: Params, model: Model, step: Any, global_batch: int, examples: int) -> Any:
    """A float32 scalar tensor.

    `step` is the int64 count of finished training steps, `global_batch` the images of a step over all ranks,
    `examples` those of one epoch.
    """
    steps_per_epoch = examples / global_batch
    warmup_epochs = params.num_learning_rate_warmup_epochs
    if params.piecewise_learning_rate_schedule is not None:
        rates, epochs = parse_piecewise(params.piecewise_learning_rate_schedule)
        base = rates[0]
        rate = _piecewise(step, rates, [int(e * steps_per_epoch) for e in epochs])
    elif params.init_learning_rate is not None:
        base = params.init_learning_rate
        rate = tf.constant(base, tf.float32)
        if params.num_epochs_per_decay:
            steps = int(params.num_epochs_per_decay * steps_per_epoch)
            rate = tf.maximum(
                _falling(step, base, params.learning_rate_decay_factor, steps), params.minimum_learning_rate
            )
    else:
        recipe = model.recipe
        warmup_epochs = recipe.warmup_epochs
        if params.resnet_base_lr is not None and recipe.serves_resnet_base_lr:
            recipe = replace(recipe, rate=params.resnet_base_lr)
        base = recipe.rate * (global_batch / recipe.per_images if recipe.per_images else 1.0)
        if recipe.tenth_every_epochs:
            rate = _falling(step, base, 0.1, int(recipe.tenth_every_epochs * steps_per_epoch))
        else:
            epoch = int(steps_per_epoch) if recipe.whole_steps else steps_per_epoch
            rates = [base, *(base * factor for factor in recipe.factors)]
            # The step at the boundary itself still has the rate before it.
            rate = _piecewise(step, rates, [int(e * epoch) + 1 for e in recipe.drops])
    if warmup_steps := int(warmup_epochs * steps_per_epoch):
        rising = base * tf.cast(step, tf.float32) / warmup_steps
        rate = tf.where(step < warmup_steps, rising, rate)
    return rate


def _piecewise(step: Any, rates: list[float], starts: list[int]) -> Any:
    """rates[i] from step starts[i - 1] on."""
    if not starts:
        return tf.constant(rates[0], tf.float32)
    passed = step >= tf.constant(starts, tf.int64)
    return tf.gather(tf.constant(rates, tf.float32), tf.reduce_sum(tf.cast(passed, tf.int32)))


def _falling(step: Any, rate: float, factor: float, steps: int) -> Any:
    """`rate`, multiplied by `factor` after each so many steps."""
    falls = tf.cast(step // max(1, steps), tf.float32)
    return rate * tf.pow(tf.constant(factor, tf.float32), falls)
