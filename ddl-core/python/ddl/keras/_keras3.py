"""Makes Keras 3's optimizers average their gradients, on the TensorFlow backend."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
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
    _hook_clip_gradients(base_optimizer.BaseOptimizer)
    _hook_jit_compile()


class _Accumulation(threading.local):
    """The variables of the accumulating update that is under way in this thread."""

    def __init__(self) -> None:
        self.variables: list[Any] | None = None

    @contextlib.contextmanager
    def of(self, pairs: list[tuple[Any, Any]]) -> Iterator[None]:
        """A block that is an update by these gradients."""
        self.variables = [variable for gradient, variable in pairs if gradient is not None]
        try:
            yield
        finally:
            self.variables = None


_accumulation = _Accumulation()


def _accumulates(optimizer: Any, variables: list[Any]) -> bool:
    """True for an optimizer that adds up the gradients of several batches by itself.

    Not for one that wraps another (it looks at the gradients of every batch), and not with variables that
    are overwritten by their gradients (float8 scales), which happens at every batch.
    """
    return bool(
        getattr(optimizer, "gradient_accumulation_steps", None)
        and getattr(optimizer, "inner_optimizer", None) is None
        and not any(getattr(variable, "overwrite_with_gradient", False) for variable in variables)
    )


def _hook_clip_gradients(optimizer: type) -> None:
    """Where an accumulating optimizer has the sum of its gradients, which it clips before it applies them."""
    from ddl.tensorflow._gradients import grads_reduce

    original = optimizer._clip_gradients  # type: ignore[attr-defined]

    @functools.wraps(original)
    def _clip_gradients(self: Any, grads: Any) -> Any:
        variables, grads = _accumulation.variables, list(grads)
        if variables is not None and len(variables) == len(grads):
            grads = [gradient for gradient, _ in grads_reduce(zip(grads, variables, strict=True))]
        return original(self, grads)

    optimizer._clip_gradients = _clip_gradients  # type: ignore[attr-defined]


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
        pairs = list(zip(grads, variables, strict=True))
        _variables.broadcast_optimizer(self, pairs, lambda: build(self, variables))
        if _accumulates(self, variables):
            # Before the last batch of a step there is nothing to exchange.
            with _optimizers.update, _accumulation.of(pairs):
                return original(self, grads, None if trainable_variables is None else variables)
        reduced = [gradient for gradient, _ in grads_reduce(pairs)]
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
