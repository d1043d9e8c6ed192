"""Makes Keras 3's optimizers average their gradients, whichever backend Keras runs on.

`apply` is hooked, which `apply_gradients` and the trainers call. How gradients are exchanged is the backend's
business: `_keras3_tensorflow`, `_keras3_torch`. On a backend without such a module (JAX) the first update of
a
distributed job is an error: training on would give every rank a model of its own.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import keras
from ddl_drift import keras_learning_rate

import ddl
from ddl._updates import hook_overrides, update
from ddl.keras._batch_normalization import hook_moments

_integrated = False

#: Backend of Keras -> the package of this project that averages there.
_PACKAGES = {"tensorflow": "ddl.tensorflow", "torch": "ddl.torch"}


class Exchange(Protocol):
    """What a backend must bring."""

    def distributed(self) -> bool:
        """True when there is more than one rank."""
        ...

    def reduce(self, pairs: Sequence[tuple[Any, Any]]) -> list[Any]:
        """The gradients of pairs of gradient and variable, averaged over the ranks; None stays None."""
        ...

    def synchronise(
        self, optimizer: Any, pairs: Sequence[tuple[Any, Any]], build: Callable[[], Sequence[Any]]
    ) -> None:
        """At the first update of an optimizer: its state becomes that of rank 0."""
        ...

    def after_update(
        self, optimizer: Any, variables: Sequence[Any], learning_rate: Callable[[Any], float | None]
    ) -> None:
        """Behind an update: compares the ranks' weights from time to time."""
        ...

    def after_local_update(self, pairs: list[tuple[Any, Any]]) -> None:
        """Behind an update within `no_averaging`: the ranks' weights may differ from then on."""
        ...


def integrate() -> None:
    """Hooks `apply` of all optimizers, and `fit` and `evaluate` of all models; once."""
    global _integrated
    if _integrated:
        return
    _integrated = True
    from keras.src.optimizers import base_optimizer

    from ddl.keras import _trainer

    exchange = _exchange(keras.backend.backend())
    # Some replace apply, and may call that of inner optimizers within.
    hook_overrides(base_optimizer.BaseOptimizer, "apply", lambda optimizer: _hook_apply(optimizer, exchange))
    _hook_clip_gradients(base_optimizer.BaseOptimizer, exchange)
    if keras.backend.backend() == "tensorflow":
        _hook_jit_compile(exchange)
    if keras.backend.backend() == "tensorflow" and not isinstance(exchange, _NoExchange):
        hook_moments(keras.layers.BatchNormalization, "_moments")
    _trainer.integrate(keras.Model, broadcasts=not isinstance(exchange, _NoExchange))


def _exchange(backend: str) -> Exchange:
    package = _PACKAGES.get(backend)
    if package is None:
        return _NoExchange(
            f"Keras runs on {backend}, where DDL cannot average gradients; in the first update; set "
            "KERAS_BACKEND to "
            "tensorflow or torch"
        )
    if importlib.util.find_spec(package) is None:
        return _NoExchange(
            f"{package} is not installed, without which DDL cannot average the gradients of Keras on "
            f"{backend}; in the "
            f"first update; install ddl-{'pytorch' if backend == 'torch' else backend}"
        )
    module = importlib.import_module(f"ddl.keras._keras3_{backend}")
    exchange: Exchange = module.exchange()
    return exchange


class _NoExchange:
    """The exchange of a backend on which gradients cannot be averaged: says so at the first update."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def distributed(self) -> bool:
        return bool(ddl.is_initialized()) and ddl.size() > 1

    def reduce(self, pairs: Sequence[tuple[Any, Any]]) -> list[Any]:
        raise self._error()

    def synchronise(
        self, optimizer: Any, pairs: Sequence[tuple[Any, Any]], build: Callable[[], Sequence[Any]]
    ) -> None:
        raise self._error()

    def after_update(
        self, optimizer: Any, variables: Sequence[Any], learning_rate: Callable[[Any], float | None]
    ) -> None:
        raise self._error()

    def after_local_update(self, pairs: list[tuple[Any, Any]]) -> None:
        pass

    def _error(self) -> ddl.DDLError:
        return ddl.DDLError(
            f"[ERROR DDL-1-5] {self._reason}, or, where each rank is to train a model of its own, put the "
            "training into "
            "`with ddl.keras.no_averaging():`",
            5,
        )


class _Accumulation(threading.local):
    """The variables of the accumulating update that is under way in this thread."""

    def __init__(self) -> None:
        self.variables: list[Any] | None = None
        #: Whether the update, or the graph of it, has averaged: at the last batch of a step.
        self.averaged = False

    @contextlib.contextmanager
    def of(self, pairs: list[tuple[Any, Any]]) -> Iterator[None]:
        """A block that is an update by these gradients."""
        self.variables = [variable for gradient, variable in pairs if gradient is not None]
        self.averaged = False
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


def _hook_clip_gradients(optimizer: type, exchange: Exchange) -> None:
    """Where an accumulating optimizer has the sum of its gradients, which it clips before it applies them."""
    original = optimizer._clip_gradients  # type: ignore[attr-defined]

    @functools.wraps(original)
    def _clip_gradients(self: Any, grads: Any) -> Any:
        variables, grads = _accumulation.variables, list(grads)
        if variables is not None and len(variables) == len(grads):
            grads = exchange.reduce(list(zip(grads, variables, strict=True)))
            _accumulation.averaged = True
        return original(self, grads)

    optimizer._clip_gradients = _clip_gradients  # type: ignore[attr-defined]


def _hook_apply(optimizer: type, exchange: Exchange) -> None:
    original = optimizer.apply  # type: ignore[attr-defined]

    def build(self: Any, variables: list[Any]) -> list[Any]:
        if not self.built:
            with keras.src.backend.name_scope(self.name, caller=self):
                self.build(variables)
            self.built = True
        return list(self.variables)

    @functools.wraps(original)
    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        if update.nested or not exchange.distributed():
            return original(self, grads, trainable_variables)
        grads = list(grads)
        variables = list(self._trainable_variables if trainable_variables is None else trainable_variables)
        if len(grads) != len(variables):
            return original(self, grads, trainable_variables)  # raises Keras' own error
        pairs = list(zip(grads, variables, strict=True))
        passed_variables = None if trainable_variables is None else variables
        if update.unaveraged:
            result = original(self, grads, passed_variables)
            exchange.after_local_update(pairs)
            return result
        exchange.synchronise(self, pairs, lambda: build(self, variables))
        if _accumulates(self, variables):
            # Before the last batch of a step there is nothing to exchange.
            with update, _accumulation.of(pairs):
                result = original(self, grads, passed_variables)
            if not _accumulation.averaged:
                return result
        else:
            reduced = exchange.reduce(pairs)
            with update:
                result = original(self, reduced, passed_variables)
        exchange.after_update(self, variables, keras_learning_rate)
        return result

    optimizer.apply = apply  # type: ignore[attr-defined]


def _hook_jit_compile(exchange: Exchange) -> None:
    from keras.src.trainers.trainer import Trainer

    from ddl.keras._jit import warn_not_compiled

    resolve_auto = Trainer._resolve_auto_jit_compile
    getter, setter = Trainer.jit_compile.fget, Trainer.jit_compile.fset

    @functools.wraps(resolve_auto)
    def _resolve_auto_jit_compile(self: Any) -> bool:
        return False if exchange.distributed() else resolve_auto(self)

    def set_jit_compile(self: Any, value: Any) -> None:
        if value and exchange.distributed():
            warn_not_compiled()
            value = False
        setter(self, value)

    Trainer._resolve_auto_jit_compile = _resolve_auto_jit_compile
    Trainer.jit_compile = property(getter, set_jit_compile)
