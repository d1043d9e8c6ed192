"""Has the ranks' weights compared after the updates of TensorFlow's and Keras' optimizers, and finds scripts
that average nothing. TF1's sessions are the subject of `ddl_drift.sessions`.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import ddl_drift
import ddl_drift.tensorflow as compared
import tensorflow as tf
from ddl_drift.sessions import NotedUpdate, note

from ddl import _drift
from ddl._updates import update
from ddl.tensorflow._gradients import all_come_from_reduced
from ddl.tensorflow._world import distributed


def after_update(
    owner: Any, variables: Sequence[Any], learning_rate: Callable[[Any], float | None] = lambda _: None
) -> None:
    """See ddl_drift.tensorflow."""
    compared.after_update(owner, variables, _drift.ranks(), learning_rate)


def after_averaging(sources: Sequence[Any]) -> None:
    """See ddl_drift.tensorflow."""
    if distributed():
        compared.after_averaging(sources, _drift.ranks())


class _LocalUpdate:
    """An update within `no_averaging` by a function."""

    def __init__(self, variables: Sequence[Any]) -> None:
        self._variables = [weakref.ref(variable) for variable in variables]

    def updated(self) -> None:
        """Called when the function has run."""
        ddl_drift.exclude(variable for reference in self._variables if (variable := reference()) is not None)


@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def after_local_update(pairs: list[tuple[Any, Any]], operator: Any = None) -> None:
    """Called when an update was made, or put into a graph, within `no_averaging`.

    The ranks' values may differ from then on.

    Args:
        pairs: Its gradients and variables.
        operator: The one that makes the update, in a graph of TF1.
    """
    if all_come_from_reduced(pairs):
        return
    variables = [compared.local_of(variable) for gradient, variable in pairs if gradient is not None]
    if tf.executing_eagerly() or (
        tf.inside_function() and not tf.compat.v1.executing_eagerly_outside_functions()
    ):
        ddl_drift.exclude(variables)
    elif tf.inside_function():
        compared.mark(tf.compat.v1.get_default_graph(), {_LocalUpdate(variables): None})
    elif operator is not None:
        note(NotedUpdate(operator, variables, [], averages=False))


class _UnaveragedVariables:
    """The check of a script that updates the sources of a tape, and averages nothing."""

    def __init__(self) -> None:
        self.check = _drift.Unaveraged()
        self._variables: compared.Variables | None = None

    def watch(self, variables: list[Any]) -> None:
        """Looks at these."""
        self._variables = compared.Variables(variables)

    def updated(self) -> None:
        """Called at each gradient."""
        if self._variables is not None:
            self.check.updated(self._variables)


_unaveraged = _UnaveragedVariables()


def note_gradient(sources: Sequence[Any]) -> None:
    """Called where a tape gives gradients of variables, in eager execution or into the graph of a function.

    Raises:
        DDLError: The script updates variables and averages nothing.
    """
    if not _unaveraged.check.needs_updates() or update.inside or not distributed():
        return
    variables = [
        source for source in sources if getattr(source, "trainable", False) and compared.is_comparable(source)
    ]
    if not variables or tf.distribute.has_strategy():
        return
    _unaveraged.watch(variables)
    if tf.executing_eagerly():
        _unaveraged.updated()
    else:
        compared.mark(tf.compat.v1.get_default_graph(), {_unaveraged: None})


def integrate() -> None:
    """Hooks the calls of functions, and tapes."""
    compared.hook_calls()
    _hook_tapes()


def _hook_tapes() -> None:
    original = tf.GradientTape.gradient

    @functools.wraps(original)
    def gradient(self: Any, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, target, sources, *args, **kwargs)
        if _unaveraged.check.needs_updates():
            note_gradient(tf.nest.flatten(sources))
        return result

    tf.GradientTape.gradient = gradient
