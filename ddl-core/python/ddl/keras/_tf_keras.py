"""Makes tf_keras' optimizers, the legacy ones too, average their gradients."""

from __future__ import annotations

import functools
import importlib.util
from typing import Any

_integrated = False


def integrate() -> None:
    """Hooks `apply_gradients`, which `minimize` and `fit` call, of all optimizers; once."""
    global _integrated
    if _integrated:
        return
    _integrated = True
    if importlib.util.find_spec("ddl.tensorflow") is None:
        return
    import tf_keras
    from tf_keras.src.layers.normalization import batch_normalization
    from tf_keras.src.mixed_precision import loss_scale_optimizer  # noqa: F401  two classes to hook
    from tf_keras.src.optimizers import optimizer
    from tf_keras.src.optimizers.legacy import optimizer_v2

    from ddl._updates import hook_overrides
    from ddl.keras import _trainer
    from ddl.keras._batch_normalization import hook_moments

    # Some replace apply_gradients, and call that of their inner optimizer in one branch of a condition only.
    for base in (optimizer._BaseOptimizer, optimizer_v2.OptimizerV2):
        hook_overrides(base, "apply_gradients", hook_apply_gradients)
    _hook_compile()
    hook_moments(batch_normalization.BatchNormalizationBase, "_sync_calculate_mean_and_var")
    _trainer.integrate(tf_keras.Model)


def integrate_tensorflows_copy() -> None:
    """Hooks the optimizers of tensorflow.python.keras, which TensorFlow has for its own use; scripts import
    them.
    """
    if importlib.util.find_spec("ddl.tensorflow") is None:
        return
    from tensorflow.python.keras.optimizer_v2 import optimizer_v2

    from ddl._updates import hook_overrides

    hook_overrides(optimizer_v2.OptimizerV2, "apply_gradients", hook_apply_gradients)


def _is_legacy(optimizer: Any) -> bool:
    return hasattr(optimizer, "_create_all_weights")


def _build(optimizer: Any, variables: list[Any]) -> list[Any]:
    """Make the variables of an optimizer, or of the one within."""
    import tensorflow as tf

    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    if not _is_legacy(optimizer):
        with tf.name_scope(optimizer.name or "optimizer"):
            optimizer.build(variables)
        return list(optimizer.variables)
    if not variables:
        return []  # no gradient at all; the optimizer will say so
    with tf.name_scope(optimizer._name):
        optimizer._create_all_weights(variables)
    return list(optimizer.weights)


def hook_apply_gradients(optimizer: type) -> None:
    """Has a class of optimizers average the gradients that its `apply_gradients` gets."""
    import tensorflow as tf
    from ddl_drift import keras_learning_rate

    from ddl._updates import update
    from ddl.tensorflow import _session, _variables
    from ddl.tensorflow._drift import after_local_update, after_update
    from ddl.tensorflow._gradients import grads_reduce
    from ddl.tensorflow._world import distributed

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
        _variables.broadcast_optimizer(self, pairs, lambda: _build(self, _to_build_for(self, pairs)))
        with tf.init_scope():
            if _variables.broadcast_enabled() and not tf.executing_eagerly():
                _session.broadcast_before_training(tf.compat.v1.get_default_graph())
        pairs = grads_reduce(pairs)
        with update:
            result = original(self, pairs, *args, **kwargs)
        after_update(self, [variable for _, variable in pairs], keras_learning_rate)
        return result

    optimizer.apply_gradients = apply_gradients  # type: ignore[attr-defined]


def _to_build_for(optimizer: Any, pairs: list[tuple[Any, Any]]) -> list[Any]:
    """What the optimizer would build itself for: a legacy one for variables with a gradient only."""
    if _is_legacy(getattr(optimizer, "inner_optimizer", optimizer)):
        return [variable for gradient, variable in pairs if gradient is not None]
    return [variable for _, variable in pairs]


def _hook_compile() -> None:
    import tf_keras

    from ddl.keras._jit import warn_not_compiled
    from ddl.tensorflow._world import distributed

    original = tf_keras.Model.compile

    @functools.wraps(original)
    def compile(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        if self._jit_compile and distributed():
            warn_not_compiled()
            self._jit_compile = False
        return result

    tf_keras.Model.compile = compile
