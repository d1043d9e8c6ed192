"""The learning rate as a function of the step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import tensorflow as tf

from tf_cnn_benchmarks.models import Model
from tf_cnn_benchmarks.params import Params
from tf_cnn_benchmarks.piecewise import parse_piecewise

RESNET_BASE_BATCH = 256
"""The batch of --resnet_base_lr; the rate grows with the global batch from there."""


def learning_rate(params: Params, model: Model, step: Any, global_batch: int, examples: int) -> Any:
    """A float32 scalar tensor.

    `step` is the int64 count of finished training steps, `global_batch` the images of a step over all ranks,
    `examples` those of one epoch.
    """
    steps_per_epoch = examples / global_batch
    epoch = tf.cast(step, tf.float32) / tf.constant(steps_per_epoch, tf.float32)
    if params.piecewise_learning_rate_schedule is not None:
        rates, epochs = parse_piecewise(params.piecewise_learning_rate_schedule)
        return _piecewise(step, rates, [e * steps_per_epoch for e in epochs])
    if params.init_learning_rate is None:
        recipe = model.recipe
        if params.resnet_base_lr is not None and "resnet" in params.model:
            recipe = replace(recipe, rate=params.resnet_base_lr, per_images=RESNET_BASE_BATCH)
        base = recipe.rate * (global_batch / recipe.per_images if recipe.per_images else 1.0)
        rates = [base * 0.1**n for n in range(len(recipe.drops) + 1)]
        rate = _piecewise(step, rates, [e * steps_per_epoch for e in recipe.drops])
        warmup_epochs = recipe.warmup_epochs
    else:
        base = params.init_learning_rate
        rate = tf.constant(base, tf.float32)
        if params.num_epochs_per_decay:
            falls = tf.floor(epoch / params.num_epochs_per_decay)
            rate = rate * tf.pow(tf.constant(params.learning_rate_decay_factor, tf.float32), falls)
            rate = tf.maximum(rate, params.minimum_learning_rate)
        warmup_epochs = params.num_learning_rate_warmup_epochs
    if warmup_epochs:
        rate = tf.where(epoch < warmup_epochs, base * epoch / warmup_epochs, rate)
    return rate


def _piecewise(step: Any, rates: list[float], boundaries: list[float]) -> Any:
    """rates[i] while boundaries[i - 1] <= step < boundaries[i]."""
    if not boundaries:
        return tf.constant(rates[0], tf.float32)
    passed = tf.cast(step, tf.float64) >= tf.constant(boundaries, tf.float64)
    return tf.gather(tf.constant(rates, tf.float32), tf.reduce_sum(tf.cast(passed, tf.int32)))
