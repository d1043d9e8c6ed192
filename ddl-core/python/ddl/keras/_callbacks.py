"""The Keras callbacks.

They serve Keras 3 and tf_keras alike, and so inherit from neither's `Callback`: both call whatever has the
methods, and a process may hold both.
"""

from __future__ import annotations

import numbers
from collections.abc import MutableMapping
from typing import Any

import numpy as np

import ddl
from ddl import _drift


class Callback:
    """The interface of a Keras callback; does nothing."""

    #: tf_keras: the logs shall be numbers, not tensors.
    _supports_tf_logs = False
    _chief_worker_only = None

    def __init__(self) -> None:
        self.model: Any = None
        self.params: dict[str, Any] = {}
        self.validation_data = None

    def set_model(self, model: Any) -> None:
        """Called by Keras with the model that is trained."""
        self.model = model

    def set_params(self, params: dict[str, Any]) -> None:
        """Called by Keras with the parameters of `fit`."""
        self.params = params

    def _implements_train_batch_hooks(self) -> bool:
        return type(self).on_train_batch_end is not Callback.on_train_batch_end

    def _implements_test_batch_hooks(self) -> bool:
        return False

    def _implements_predict_batch_hooks(self) -> bool:
        return False

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Called by Keras."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Called by Keras."""

    def _on_begin_or_end(self, logs: Any = None) -> None:
        """Called by Keras."""

    on_train_begin = on_train_end = _on_begin_or_end
    on_test_begin = on_test_end = on_predict_begin = on_predict_end = _on_begin_or_end

    def _on_batch(self, batch: int, logs: Any = None) -> None:
        """Called by Keras."""

    on_batch_begin = on_batch_end = on_train_batch_begin = on_train_batch_end = _on_batch
    on_test_batch_begin = on_test_batch_end = on_predict_batch_begin = on_predict_batch_end = _on_batch


class DDLCallback(Callback):
    """Averages the metrics of each epoch over all ranks, those of the validation too.

    Put it first in the list: the callbacks after it, such as EarlyStopping, ReduceLROnPlateau and the
    history, then see the same figures on all ranks and decide alike. Given to `evaluate`, that returns
    averages.
    Every rank counts alike, so evaluate equally many elements on each, as `ddl.shard` deals them out. With
    one rank it
    does nothing. Horovod's MetricAverageCallback does the same in `fit`, and nothing in `evaluate`.
    """

    @_drift.averages_nothing()
    def on_epoch_end(self, epoch: int, logs: MutableMapping[str, Any] | None = None) -> None:
        """Replaces the numbers in `logs` by their averages."""
        if not logs or ddl.size() == 1:
            return
        keys = sorted(
            key for key, value in logs.items() if isinstance(value, numbers.Real) or np.ndim(value) == 0
        )
        if not keys:
            return
        local_values = np.array([float(logs[key]) for key in keys], dtype=np.float64)
        averaged = ddl.allreduce(local_values, op="avg", name=f"metrics of epoch {epoch}: {', '.join(keys)}")
        logs.update(zip(keys, averaged.tolist(), strict=True))


class DDLGlobalVariablesCallback(Callback):
    """Gives all ranks rank 0's model and optimizer variables when training begins.

    All of them: weights, moving averages of a batch normalisation, the optimizer's slots, its learning rate
    and its
    count of iterations. In a distributed job `fit` adds it by itself, last in the list, behind callbacks that
    load
    weights; put it there yourself to have it elsewhere. With one rank it does nothing. Horovod's
    BroadcastGlobalVariablesCallback gives the optimizer's variables after the first batch only.
    """

    def __init__(self) -> None:
        super().__init__()
        self._after_first_batch = False

    def on_train_begin(self, logs: Any = None) -> None:
        """Broadcasts the variables, or waits for the first batch where the model has none yet."""
        self._after_first_batch = not self._broadcast()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Broadcasts the variables of a model that has been built by its first batch."""
        if self._after_first_batch:
            self._after_first_batch = not self._broadcast()

    def _broadcast(self) -> bool:
        """False when the model has no variables yet."""
        if ddl.size() == 1:
            return True
        if not self.model.built:
            return False
        broadcast_state(self.model)
        return True


@_drift.averages_nothing()
def broadcast_state(model: Any) -> None:
    """Gives all ranks rank 0's variables of a built model and of its optimizer. Collective."""
    _broadcast_values([*model.weights, *_optimizer_variables(getattr(model, "optimizer", None))])


def _optimizer_variables(optimizer: Any) -> list[Any]:
    variables = getattr(optimizer, "variables", None) or []
    collected = list(variables() if callable(variables) and not isinstance(variables, list) else variables)
    # tf_keras does not count the learning rate among them.
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    settings = [getattr(inner, "_learning_rate", None)]
    if (create := getattr(inner, "_create_hypers", None)) is not None:
        create()
        settings = list(inner._hyper.values())
    # Sums of the batches since the last update are each rank's own.
    sums = {id(variable) for variable in getattr(inner, "_accumulated_gradients", None) or []}
    collected = [variable for variable in collected if id(variable) not in sums]
    identities = {id(variable) for variable in collected}
    return collected + [
        value for value in settings if hasattr(value, "assign") and id(value) not in identities
    ]


def _broadcast_values(variables: list[Any]) -> None:
    if not variables:
        return
    library = type(getattr(variables[0], "value", None)).__module__.split(".")[0]
    if library.startswith("jax"):
        raise ddl.DDLError(
            "[ERROR DDL-1-5] Keras runs on jax, whose variables DDL does not broadcast; in "
            "DDLGlobalVariablesCallback; set KERAS_BACKEND to tensorflow or torch",
            5,
        )
    if library == "torch":
        from ddl.keras import _keras3_torch

        _keras3_torch.broadcast(variables)
        return
    import tensorflow as tf

    from ddl.tensorflow import broadcast_variables

    if tf.executing_eagerly():
        broadcast_variables(variables)
        return
    # A tf_keras model in a TF1 graph, which may be finalised: its session is asked for the values.
    from tf_keras import backend

    values = backend.batch_get_value(variables)
    names = [f"variable {i + 1}/{len(variables)} at train begin, {v.name}" for i, v in enumerate(variables)]
    received = [ddl.bcast(value, root=0, name=name) for value, name in zip(values, names, strict=True)]
    backend.batch_set_value(list(zip(variables, received, strict=True)))
