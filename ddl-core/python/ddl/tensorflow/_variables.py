"""The same initial values on all ranks.

In TensorFlow 2 a trainable variable is broadcast from rank 0 once, before the first gradient is taken of
it: when the first tf.GradientTape opens after the variable was made, or at once when it is made under an
open tape (layers that build themselves in the first step). Later would be too late, since the first
gradients would be of different models; earlier, when the variable is made, would miss weights that rank 0
loads, and let rank 0 wait for ever for a model that it alone makes. Under tf.function a tape opens while
the function is traced, and the broadcast happens then, before its first step.

TF1 sessions are the subject of `ddl.tensorflow._session`.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from ddl_drift.tensorflow import name_of, native
from tensorflow.python.eager.polymorphic_function import polymorphic_function
from tensorflow.python.ops import resource_variable_ops

from ddl.tensorflow._agreement import check_same_variables, describe_gradient
from ddl.tensorflow._collectives import bcast
from ddl.tensorflow._world import distributed

_enabled = True


def enable_broadcast(on: bool = True) -> None:
    """Switches on (or off) that initial values are broadcast from rank 0 by themselves.

    For scripts that build several graphs or models: switch off while making one which not all ranks make,
    such as a graph for evaluation on rank 0. What counts is the setting at the time when variables,
    optimizers and initialisers are made, and in TF1 also when the session runs them.
    """
    global _enabled
    _enabled = on


def disable_broadcast() -> None:
    """The same as `enable_broadcast(False)`."""
    enable_broadcast(False)


def broadcast_enabled() -> bool:
    """True when initial values are broadcast by themselves, which is the default."""
    return _enabled


@contextlib.contextmanager
def no_broadcast() -> Iterator[None]:
    """A `with` block in which the automatic broadcast is off."""
    before = _enabled
    enable_broadcast(False)
    try:
        yield
    finally:
        enable_broadcast(before)


def _encoded(tensor: Any) -> tuple[Any, Callable[[Any], Any]]:
    """A tensor of a type that DDL can move, and the function that turns it back."""
    dtype = tensor.dtype.base_dtype
    if dtype in (tf.float32, tf.float16, tf.float64, tf.bfloat16, tf.int32, tf.int64):
        return tensor, lambda moved: moved
    if dtype == tf.bool or (dtype.is_integer and dtype.size < 4):
        return tf.cast(tensor, tf.int32), lambda moved: tf.cast(moved, dtype)
    same_bits = {tf.uint32: tf.int32, tf.uint64: tf.int64, tf.complex64: tf.int64, tf.complex128: tf.int64}
    if dtype not in same_bits:
        raise TypeError(f"DDL cannot broadcast a variable of type {dtype.name}; leave it out")
    return tf.bitcast(tensor, same_bits[dtype]), lambda moved: tf.bitcast(moved, dtype)


_REMEDY = (
    "\nThe ranks do not broadcast the same variables. Make the variables that only some ranks have "
    "in a block `with ddl.tensorflow.no_broadcast():`, or on all ranks."
)


def broadcast_variables(variables: Iterable[Any], root: int = 0) -> Any:
    """Gives every rank the values that the variables have on rank `root`.

    Args:
        variables: tf.Variable or Keras variables, initialised; the same in the same order on all ranks.
        root: The rank whose values are taken.

    Returns:
        None in eager execution and within tf.function; in a TF1 graph the operator that does it.

    Raises:
        tf.errors.InvalidArgumentError: The variables differ between ranks; names the first that does.
    """
    chosen = list(variables)
    in_graph = not tf.executing_eagerly() and not tf.inside_function()
    assignments = []
    if distributed():
        for index, variable in enumerate(chosen):
            target = native(variable)
            name = f"initial value of variable {index + 1}/{len(chosen)}, {name_of(variable)}"
            encoded, decode = _encoded(tf.convert_to_tensor(target))
            try:
                value = decode(bcast(encoded, root, name))
            except tf.errors.InvalidArgumentError as error:
                raise tf.errors.InvalidArgumentError(
                    error.node_def, error.op, error.message + _REMEDY
                ) from None
            assignment = target.assign(value, read_value=False)
            if in_graph:
                assignments.append(assignment)
    return tf.group(*assignments) if in_graph else None


class _PendingVariables:
    """The trainable variables that have been made and not been broadcast yet."""

    def __init__(self) -> None:
        self._variables: list[weakref.ref[Any]] = []
        self._thread = threading.local()

    @property
    def open_tapes(self) -> int:
        return getattr(self._thread, "open_tapes", 0)

    @open_tapes.setter
    def open_tapes(self, number: int) -> None:
        self._thread.open_tapes = number

    def add(self, variable: Any) -> None:
        """Takes a variable that has just been made in eager execution."""
        if not (variable.trainable and variable.dtype.is_floating):
            return
        if self.open_tapes:
            with tf.init_scope():
                broadcast_variables([variable])
        else:
            self._variables.append(weakref.ref(variable))

    def broadcast(self) -> None:
        """Broadcasts the pending variables, unless this is a TF1 graph."""
        if not self._variables:
            return
        with tf.init_scope():
            if not tf.executing_eagerly():
                return
            alive = [variable for reference in self._variables if (variable := reference()) is not None]
            self._variables.clear()
            broadcast_variables([variable for variable in alive if variable.is_initialized()])


pending = _PendingVariables()


def integrate() -> None:
    """Makes new variables and tapes take part."""
    _watch_new_variables()
    _watch_variables_made_by_functions()
    _watch_tapes()


def _watch_new_variables() -> None:
    # Variables that a tf.function makes, and the handles that assignments return, are of other classes.
    original = resource_variable_ops.ResourceVariable.__init__

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if _enabled and not self._in_graph_mode and distributed():
            pending.add(self)

    resource_variable_ops.ResourceVariable.__init__ = __init__


def _watch_variables_made_by_functions() -> None:
    """A variable that a tf.function makes in its first call gets rank 0's value as its initial value."""
    original = polymorphic_function.UnliftedInitializerVariable.__init__

    @functools.wraps(original)
    def __init__(self: Any, initial_value: Any = None, trainable: Any = None, **kwargs: Any) -> None:
        if _enabled and trainable is not False and pending.open_tapes and distributed():
            own_value, dtype, name = initial_value, kwargs.get("dtype"), kwargs.get("name")

            def initial_value() -> Any:
                value = tf.convert_to_tensor(own_value() if callable(own_value) else own_value, dtype=dtype)
                if not value.dtype.is_floating:
                    return value
                return bcast(value, name=f"initial value of variable {name}")

        original(self, initial_value, trainable, **kwargs)

    polymorphic_function.UnliftedInitializerVariable.__init__ = __init__


def _watch_tapes() -> None:
    enter, leave = tf.GradientTape.__enter__, tf.GradientTape.__exit__

    @functools.wraps(enter)
    def __enter__(self: Any) -> Any:
        if pending.open_tapes == 0 and distributed():
            pending.broadcast()
        pending.open_tapes += 1
        return enter(self)

    @functools.wraps(leave)
    def __exit__(self: Any, *exception: Any) -> Any:
        pending.open_tapes -= 1
        return leave(self, *exception)

    tf.GradientTape.__enter__ = __enter__
    tf.GradientTape.__exit__ = __exit__


_synchronised_optimizers: weakref.WeakSet[Any] = weakref.WeakSet()


def broadcast_optimizer(
    optimizer: Any, pairs: Sequence[tuple[Any, Any]], build: Callable[[], Sequence[Any]]
) -> None:
    """At the first update of an optimizer: its state, the iteration counter included, becomes that of rank 0.

    Args:
        optimizer: The optimizer, whose identity decides what is first.
        pairs: Gradients and variables of the update, which must be for the same variables on all ranks.
        build: Makes the optimizer's variables where they are missing, and returns them.
    """

    def broadcast(*_: Any) -> None:
        if not _enabled or optimizer in _synchronised_optimizers:
            return
        with tf.init_scope():
            if not tf.executing_eagerly():
                return  # a TF1 graph; its session does it
            _synchronised_optimizers.add(optimizer)
            pending.broadcast()
            names = [name_of(variable) for _, variable in pairs]
            kinds = [describe_gradient(gradient) for gradient, _ in pairs]
            check_same_variables(names, kinds, "the first update of an optimizer")
            broadcast_variables(build())

    replica = tf.distribute.get_replica_context()
    if replica is None or replica.num_replicas_in_sync == 1:
        broadcast()
    else:
        # Every replica of a strategy comes here, and only together may they assign.
        replica.merge_call(tf.autograph.experimental.do_not_convert(broadcast))
