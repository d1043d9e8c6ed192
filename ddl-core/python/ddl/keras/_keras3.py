"""Makes Keras 3's optimizers average their gradients, on the TensorFlow backend."""

from __future__ import annotations

import functools
from typing import Any

import keras

_integrated = False


def integrate() -> None:
    """Hooks `apply`, which `apply_gradients` and the trainers call, of all optimizers; once.

    On another backend nothing is hooked.
    """
    global _integrated
    if _integrated or keras.backend.backend() != "tensorflow":
        return
    _integrated = True
    from keras.src.optimizers import base_optimizer, loss_scale_optimizer

    _hook_apply(base_optimizer.BaseOptimizer)
    # These override apply, and call that of their inner optimizers within.
    _hook_apply(loss_scale_optimizer.LossScaleOptimizer)
    try:
        from keras.src.optimizers import multi_optimizer
    except ImportError:
        pass  # a Keras that has none
    else:
        _hook_apply(multi_optimizer.MultiOptimizer)
    _hook_jit_compile()


def _hook_apply(optimizer: type) -> None:
    from ddl.tensorflow import _optimizers, _variables
    from ddl.tensorflow._gradients import grads_reduce
    from ddl.tensorflow._world import distributed

    original = optimizer.apply  # type: ignore[attr-defined]

    def build(self: Any, variables: list[Any]) -> list[Any]:
        if not self.built:
            with keras.src.backend.name_scope(self.name, caller=self):
                self.build(variables)
            self.built = True
        return list(self.variables)

    @functools.wraps(original)
    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        if _optimizers.update.inside or not distributed():
            return original(self, grads, trainable_variables)
        grads = list(grads)
        variables = list(self._trainable_variables if trainable_variables is None else trainable_variables)
        if len(grads) != len(variables):
            return original(self, grads, trainable_variables)  # raises Keras' own error
        _variables.broadcast_optimizer(self, lambda: build(self, variables))
        reduced = [gradient for gradient, _ in grads_reduce(zip(grads, variables, strict=True))]
        with _optimizers.update:
            return original(self, reduced, None if trainable_variables is None else variables)

    optimizer.apply = apply  # type: ignore[attr-defined]


def _hook_jit_compile() -> None:
    from keras.src.trainers.trainer import Trainer

    from ddl.keras._jit import warn_not_compiled
    from ddl.tensorflow._world import distributed

    resolve_auto = Trainer._resolve_auto_jit_compile
    getter, setter = Trainer.jit_compile.fget, Trainer.jit_compile.fset

    @functools.wraps(resolve_auto)
    def _resolve_auto_jit_compile(self: Any) -> bool:
        return False if distributed() else resolve_auto(self)

    def set_jit_compile(self: Any, value: Any) -> None:
        if value and distributed():
            warn_not_compiled()
            value = False
        setter(self, value)

    Trainer._resolve_auto_jit_compile = _resolve_auto_jit_compile
    Trainer.jit_compile = property(getter, set_jit_compile)
