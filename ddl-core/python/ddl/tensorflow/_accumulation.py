"""Gradient accumulation: the gradients of several batches are added up, exchanged once, and applied once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf
from ddl_drift.tensorflow import name_of, native

from ddl.tensorflow import _variables
from ddl.tensorflow._gradients import mark_reduced, note_update
from ddl.tensorflow._session import broadcast_before_training
from ddl.tensorflow._world import distributed


class GradientAccumulator(tf.Module):  # type: ignore[misc]
    """Lets an optimizer update once in `backward_passes_per_step` batches, by the mean of their gradients.

    Between two updates nothing is communicated. For training loops (eager, tf.function) and TF1 graphs;
    for `fit` see `ddl.keras.accumulate_gradients`. Without a launcher it accumulates as well.

    Args:
        backward_passes_per_step: Batches for one update, the same on all ranks.
        apply: Makes the update, for example `optimizer.apply_gradients`; it averages over the ranks.
        name: Of the variables that hold the sums.
    """

    def __init__(
        self,
        backward_passes_per_step: int,
        apply: Callable[[list[tuple[Any, Any]]], Any],
        name: str = "gradient_accumulator",
    ) -> None:
        super().__init__(name=name)
        if backward_passes_per_step < 1:
            raise ValueError(f"backward_passes_per_step is {backward_passes_per_step}; it must be 1 or more")
        self._passes = backward_passes_per_step
        self._apply = apply
        self._batches: Any = None
        self._sums: list[Any] = []
        self._names: list[Any] = []

    def minimize(self, loss: Any, var_list: Sequence[Any] | None = None) -> Any:
        """In a TF1 graph: `apply_gradients` of the gradients of `loss`.

        An optimizer's own minimize would average the gradients of every batch.
        """
        variables = list(var_list or tf.compat.v1.trainable_variables())
        return self.apply_gradients(zip(tf.gradients(loss, variables), variables, strict=True))

    def apply_gradients(self, grads_and_vars: Iterable[tuple[Any, Any]]) -> Any:
        """Adds the gradients of one batch, and updates if it is the last one of a step.

        Args:
            grads_and_vars: The same variables at every call.

        Returns:
            A boolean tensor, whether there was an update. In a TF1 graph it is what a session runs to train.
        """
        pairs = [(gradient, variable) for gradient, variable in grads_and_vars if gradient is not None]
        if not pairs:
            raise ValueError("GradientAccumulator: there is no gradient for any variable")
        names = [name_of(variable) for _, variable in pairs]
        if any(getattr(variable.dtype, "_is_ref_dtype", False) for _, variable in pairs):
            raise ValueError(
                "GradientAccumulator: reference variables cannot be updated in a branch; make them with "
                "use_resource=True, or call tf.compat.v1.enable_resource_variables() first"
            )
        if self._batches is None:
            with tf.init_scope():
                self._make_variables([variable for _, variable in pairs])
            self._names = names
        elif names != self._names:
            raise ValueError(
                f"GradientAccumulator: gradients for {', '.join(names)}, but at the first call they were for "
                f"{', '.join(self._names)}; give every set of variables an accumulator of its own"
            )
        added = [_add(total, gradient) for total, (gradient, _) in zip(self._sums, pairs, strict=True)]
        with tf.control_dependencies(added):
            counted = self._batches.assign_add(1, read_value=False)
        with tf.control_dependencies([counted]):
            complete = tf.equal(self._batches.read_value(), self._passes)
            stepped = tf.cond(
                complete, lambda: self._step([variable for _, variable in pairs]), lambda: tf.constant(False)
            )
        if distributed() and not tf.executing_eagerly() and not tf.inside_function():
            # The all-reduce is within the branch, where the session does not look for it.
            mark_reduced(stepped)
            note_update(pairs, stepped)
            if _variables.broadcast_enabled():
                broadcast_before_training(stepped.graph)
        return stepped

    def _make_variables(self, variables: Sequence[Any]) -> None:
        def zeros(variable: Any, name: str) -> Any:
            shape, dtype = variable.shape, tf.as_dtype(variable.dtype)
            return tf.Variable(
                lambda: tf.zeros(shape, dtype), trainable=False, dtype=dtype, shape=shape, name=name
            )

        self._sums = [
            zeros(native(variable), f"{self.name}/sum{index}") for index, variable in enumerate(variables)
        ]
        self._batches = tf.Variable(
            lambda: tf.zeros([], tf.int64), trainable=False, dtype=tf.int64, name=f"{self.name}/batches"
        )

    def _step(self, variables: Sequence[Any]) -> Any:
        means = [total.read_value() / tf.cast(self._passes, total.dtype) for total in self._sums]
        applied = self._apply(list(zip(means, variables, strict=True)))
        # In a TF1 graph, where nothing else makes the update run.
        with tf.control_dependencies([applied] if isinstance(applied, tf.Operation) else []):
            cleared = [total.assign(tf.zeros_like(total), read_value=False) for total in self._sums]
            cleared.append(self._batches.assign(0, read_value=False))
        with tf.control_dependencies(cleared):
            return tf.constant(True)


def _add(total: Any, gradient: Any) -> Any:
    if isinstance(gradient, tf.IndexedSlices):
        return total.scatter_add(
            tf.IndexedSlices(tf.cast(gradient.values, total.dtype), gradient.indices, gradient.dense_shape)
        )
    return total.assign_add(tf.cast(gradient, total.dtype), read_value=False)
