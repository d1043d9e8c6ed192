"""TF1's optimizers average the gradients they compute, and those given to them that are not averaged yet."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf
from tensorflow.python.training import optimizer as v1_optimizer

from ddl._updates import hook_overrides, update
from ddl.tensorflow import _variables
from ddl.tensorflow._gradients import grads_reduce, is_reduced, reduced_operators
from ddl.tensorflow._graph import descendants, outermost
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
        if update.inside or not distributed():
            return original(self, grads_and_vars, *args, **kwargs)
        pairs = list(grads_and_vars)
        if not _all_come_from_reduced(pairs):
            pairs = _reduce(pairs)
        with update:
            return original(self, pairs, *args, **kwargs)

    optimizer.apply_gradients = apply_gradients  # type: ignore[attr-defined]


def _reduce(pairs: Any) -> Any:
    if not distributed():
        return pairs
    reduced = grads_reduce(pairs)
    if _variables.broadcast_enabled() and not tf.executing_eagerly():
        broadcast_before_training(tf.compat.v1.get_default_graph())
    return reduced


def _all_come_from_reduced(pairs: list[tuple[Any, Any]]) -> bool:
    """True when each gradient has been reduced, or made from reduced ones, say by clipping.

    Averaging a second time would not change the values, but cost the time. In eager execution nothing tells
    where a tensor comes from, so there clipped gradients are averaged once more.
    """
    for gradient, _ in pairs:
        if gradient is None or is_reduced(gradient):
            continue
        if tf.executing_eagerly():
            return False
        tensor = outermost(gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient)
        if not hasattr(tensor, "op"):
            return False
        reduced = reduced_operators(tensor.graph)
        if not reduced or tensor.op.name not in descendants(tensor.graph, "reduced gradients", reduced):
            return False
    return True
