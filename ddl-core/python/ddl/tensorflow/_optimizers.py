"""TF1's optimizers average the gradients they compute, and those given to them that are not averaged yet."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf
from tensorflow.python.training import optimizer as v1_optimizer

from ddl._updates import hook_overrides, update
from ddl.tensorflow import _variables
from ddl.tensorflow._drift import after_local_update, after_update
from ddl.tensorflow._gradients import all_come_from_reduced, grads_reduce
from ddl.tensorflow._session import broadcast_before_training
from ddl.tensorflow._world import distributed


def integrate() -> None:
    """Hooks the base class, which the other optimizers of tf.compat.v1.train inherit from."""
    _hook_compute_gradients(v1_optimizer.Optimizer)
    # Some replace apply_gradients, as that for loss scaling, which calls its inner one in a branch only.
    hook_overrides(v1_optimizer.Optimizer, "apply_gradients", _hook_apply_gradients)


def _hook_compute_gradients(optimizer: type) -> None:
    original = optimizer.compute_gradients  # type: ignore[attr-defined]

    @functools.wraps(original)
    def compute_gradients(self: Any, *args: Any, **kwargs: Any) -> Any:
        pairs = original(self, *args, **kwargs)
        return pairs if update.inside else _reduce(pairs)

    optimizer.compute_gradients = compute_gradients  # type: ignore[attr-defined]


def _hook_apply_gradients(optimizer: type) -> None:
    original = optimizer.apply_gradients  # type: ignore[attr-defined]

    @functools.wraps(original)
    def apply_gradients(self: Any, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        if update.nested or not distributed():
            return original(self, grads_and_vars, *args, **kwargs)
        pairs = list(grads_and_vars)
        if update.unaveraged:
            result = original(self, pairs, *args, **kwargs)
            after_local_update(pairs, result)
            return result
        # Averaging a second time would not change the values, but cost the time.
        if not all_come_from_reduced(pairs):
            pairs = _reduce(pairs)
        with update:
            result = original(self, pairs, *args, **kwargs)
        after_update(self, [variable for gradient, variable in pairs if gradient is not None])
        return result

    optimizer.apply_gradients = apply_gradients  # type: ignore[attr-defined]


def _reduce(pairs: Any) -> Any:
    if not distributed():
        return pairs
    reduced = grads_reduce(pairs)
    if _variables.broadcast_enabled() and not tf.executing_eagerly():
        broadcast_before_training(tf.compat.v1.get_default_graph())
    return reduced
