"""Keras 3 on TensorFlow: its gradients are exchanged by ddl.tensorflow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ddl.tensorflow import _drift, _variables, _world
from ddl.tensorflow._gradients import grads_reduce


class _Exchange:
    def distributed(self) -> bool:
        return _world.distributed()

    def reduce(self, pairs: Sequence[tuple[Any, Any]]) -> list[Any]:
        return [gradient for gradient, _ in grads_reduce(pairs)]

    def synchronise(
        self, optimizer: Any, pairs: Sequence[tuple[Any, Any]], build: Callable[[], Sequence[Any]]
    ) -> None:
        _variables.broadcast_optimizer(optimizer, pairs, build)

    def after_update(
        self, optimizer: Any, variables: Sequence[Any], learning_rate: Callable[[Any], float | None]
    ) -> None:
        _drift.after_update(optimizer, variables, learning_rate)

    def after_local_update(self, pairs: list[tuple[Any, Any]]) -> None:
        _drift.after_local_update(pairs)


def exchange() -> _Exchange:
    """What `_keras3` needs of this backend."""
    return _Exchange()
