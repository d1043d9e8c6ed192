"""Has the ranks' weights compared after updates of TensorFlow's and Keras' optimizers.

In eager execution an update is over when `apply` returns. What a tf.function does is known when it is traced:
its graph is marked, and each call of it from eager execution counts as an update.

To be imported behind TensorFlow, whose import integrates `ddl`, which needs this module whole.
"""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.distribute import ps_values
from tensorflow.python.eager.polymorphic_function import concrete_function
from tensorflow.python.framework.func_graph import FuncGraph
from tensorflow.python.ops import gen_resource_variable_ops, resource_variable_ops

import ddl_drift

#: Set on the graph of a function: the watches of what it updates, in order.
_WATCHES = "_ddl_watches"
#: Set on the first of an update's variables: whether an optimizer updates it, else what owns the watch.
_HAS_OPTIMIZER = "_ddl_has_optimizer"
_OWNER = "_ddl_owner_of_watch"


def name_of(variable: Any) -> str:
    """The name under which a variable is shown in errors."""
    return str(getattr(variable, "path", None) or getattr(variable, "name", None) or "unnamed")


def native(variable: Any) -> Any:
    """The tf.Variable behind a Keras 3 variable; any other variable itself."""
    value = getattr(variable, "value", None)
    return value if value is not None and not callable(value) else variable


class Variables(ddl_drift.Weights):
    """Variables of eager execution."""

    def __init__(self, variables: Sequence[Any]) -> None:
        local = [local_of(variable) for variable in variables]
        super().__init__(
            local,
            [name_of(variable) for variable in variables],
            [int(variable.shape.num_elements() or 0) for variable in local],
            [variable.dtype.base_dtype.name for variable in local],
        )

    def checksums(self, chosen: Sequence[int]) -> Sequence[int]:
        """See Weights."""
        with tf.init_scope():
            return [ddl_drift.checksum(self._view(index)) for index in chosen]

    def read(self, index: int) -> np.ndarray[Any, Any]:
        """See Weights."""
        with tf.init_scope():
            return self._view(index)

    def _view(self, index: int) -> np.ndarray[Any, Any]:
        variable = self.variable(index)
        if variable is None:
            return np.zeros(0, np.float32)
        # Without what a read of the variable itself does for tapes and devices; in the host's memory it is
        # no copy.
        tensor = gen_resource_variable_ops.read_variable_op(variable.handle, variable.dtype)
        return np.asarray(tensor._numpy())


def local_of(variable: Any) -> Any:
    """The tf.Variable of this process behind a variable of Keras 3, of mixed precision, or of a strategy."""
    target = native(variable)
    if hasattr(target, "true_dtype"):  # one that is cast where it is read
        target = target._variable
    return getattr(target, "_primary", target)


def is_comparable(variable: Any) -> bool:
    """Whether all ranks hold a variable: not what is on a server."""
    local = local_of(variable)
    return (
        isinstance(local, resource_variable_ops.BaseResourceVariable)
        and type(local).__module__ != ps_values.__name__  # on parameter servers
        and not getattr(variable, "overwrite_with_gradient", False)
    )


def _watch(
    owner: Any,
    variables: Sequence[Any],
    ranks: ddl_drift.Ranks,
    learning_rate: Callable[[Any], float | None],
) -> ddl_drift.Watch:
    watch = ddl_drift.make_watch(owner, ranks, learning_rate)
    if watch.takes([id(variable) for variable in variables]):
        watch.watch(Variables(variables))
    return watch


@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def after_update(
    owner: Any,
    variables: Sequence[Any],
    ranks: ddl_drift.Ranks,
    learning_rate: Callable[[Any], float | None] = lambda _: None,
) -> None:
    """Called when an update has been made, or put into the graph of a function. Collective.

    Args:
        owner: The optimizer.
        variables: What it updates, the same on all ranks.
        ranks: Those that are compared.
        learning_rate: Returns the present one of the owner, in eager execution; None where there is none.

    Raises:
        Exception: The ranks have drifted apart.
    """
    if not ddl_drift.enabled(ranks):
        return
    replica = tf.distribute.get_replica_context()
    eager = tf.executing_eagerly()
    if eager and replica is not None and replica.num_replicas_in_sync > 1:
        return  # The other replicas of this rank are still to make theirs.
    if not eager and not tf.inside_function():
        return
    chosen = [variable for variable in variables if is_comparable(variable)]
    if not chosen:
        return
    watch = _watch(owner, chosen, ranks, learning_rate)
    setattr(native(chosen[0]), _HAS_OPTIMIZER, True)
    if eager:
        watch.updated()
    else:
        mark(tf.compat.v1.get_default_graph(), {watch: None})


class _Tape:
    """Owns the watch of variables that are updated without an optimizer, or by one that is not known."""

    name = "a DistributedGradientTape"

    def __init__(self, variable: Any) -> None:
        self._variable = weakref.ref(variable)

    def find_optimizer(self) -> Any:
        """The optimizer of Keras that updates the variable, for an error; None where there is none.

        All objects are looked at.
        """
        variable = self._variable()
        for each in gc.get_objects():
            if hasattr(type(each), "apply_gradients"):
                state = getattr(each, "__dict__", {})
                if any(native(trained) is variable for trained in state.get("_trainable_variables") or []):
                    return each
                if getattr(variable, "_unique_id", None) in (state.get("_index_dict") or {}):
                    return each
        return None


@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def after_averaging(
    variables: Sequence[Any],
    ranks: ddl_drift.Ranks,
    owner: Any = None,
    learning_rate: Callable[[Any], float | None] = lambda _: None,
) -> None:
    """Called when gradients have been averaged, or will be in a function; what updates by them follows.
    Collective.

    Args:
        variables: Those of the gradients, the same on all ranks.
        ranks: Those that are compared.
        owner: The optimizer; None is none, as after a tape, unless one is known for the variables.
        learning_rate: As for `after_update`.

    Raises:
        Exception: The ranks have drifted apart.
    """
    chosen = [variable for variable in variables if hasattr(variable, "shape") and is_comparable(variable)]
    if not chosen or not ddl_drift.enabled(ranks) or tf.distribute.has_strategy():
        return
    first = native(chosen[0])
    if owner is not None:
        setattr(first, _HAS_OPTIMIZER, True)
    elif getattr(first, _HAS_OPTIMIZER, False):
        return
    else:
        owner = getattr(first, _OWNER, None) or _Tape(first)
        setattr(first, _OWNER, owner)
    begins = ddl_drift.watch_of(owner) is None
    watch = _watch(owner, chosen, ranks, learning_rate)
    if not tf.executing_eagerly():
        mark(tf.compat.v1.get_default_graph(), {watch: None})
    elif not begins:
        watch.updated()  # The update by the gradients before has been made.


def mark(graph: Any, watches: dict[Any, None]) -> None:
    """Has a call of the function whose graph this is, or is part of, count for the watches (`updated`)."""
    while isinstance(graph, FuncGraph):
        if not hasattr(graph, _WATCHES):
            setattr(graph, _WATCHES, {})
        getattr(graph, _WATCHES).update(watches)
        graph = graph.outer_graph


@functools.cache
def hook_calls() -> None:
    """Has calls of marked functions count as updates; once."""
    original = concrete_function.ConcreteFunction._call_flat

    @functools.wraps(original)
    def _call_flat(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        watches = getattr(self._func_graph, _WATCHES, None)
        if watches:
            if tf.executing_eagerly():
                for watch in list(watches):
                    watch.updated()
            else:
                mark(tf.compat.v1.get_default_graph(), watches)
        return result

    concrete_function.ConcreteFunction._call_flat = _call_flat
