"""The same initial values on all ranks in TF1 sessions.

Two events broadcast from rank 0: running the operator of `tf.compat.v1.global_variables_initializer()`
broadcasts the trainable variables; and before the first training step of a session all global variables are
broadcast, with what may have been restored from a checkpoint by rank 0 alone, the optimizer's slots and the
step counter. Nothing is added to the graph, so that finalised graphs and exported ones are served as well.

A SessionManager (MonitoredTrainingSession, Supervisor) runs the initialiser only where it finds no
checkpoint, which may differ between ranks; within it only the second event counts.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.client import session as session_module
from tensorflow.python.ops import variables as variables_module
from tensorflow.python.training import session_manager

import ddl
from ddl.tensorflow import _variables
from ddl.tensorflow._agreement import check_same_variables
from ddl.tensorflow._gradients import noted_updates, reduced_operators
from ddl.tensorflow._graph import ancestors, descendants
from ddl.tensorflow._world import distributed

_TRAINS = "_ddl_broadcast_before_training"
_INITIALISERS = "_ddl_initialisers"
_DONE = "_ddl_broadcast_done"

_state = threading.local()


def broadcast_before_training(graph: Any) -> None:
    """Has the sessions of this graph broadcast before their first training step."""
    setattr(graph, _TRAINS, True)


def integrate() -> None:
    """Hooks the initialisers and the sessions."""
    _hook_initialiser()
    _hook_do_run()
    _hook_callables()
    _hook_session_manager()


def _hook_initialiser() -> None:
    original = variables_module.global_variables_initializer

    @functools.wraps(original)
    def global_variables_initializer() -> Any:
        operator = original()
        if not tf.executing_eagerly() and _variables.broadcast_enabled() and distributed():
            graph = operator.graph
            if not hasattr(graph, _INITIALISERS):
                setattr(graph, _INITIALISERS, [])
            getattr(graph, _INITIALISERS).append(operator)
        return operator

    variables_module.global_variables_initializer = global_variables_initializer
    tf.compat.v1.global_variables_initializer = global_variables_initializer
    tf.compat.v1.initializers.global_variables = global_variables_initializer


@contextlib.contextmanager
def _quiet(flag: str) -> Iterator[None]:
    before = getattr(_state, flag, False)
    setattr(_state, flag, True)
    try:
        yield
    finally:
        setattr(_state, flag, before)


def _hook_do_run() -> None:
    original = session_module.BaseSession._do_run

    @functools.wraps(original)
    def _do_run(self: Any, handle: Any, target_list: Any, fetch_list: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(_state, "broadcasting", False) or not _variables.broadcast_enabled() or not distributed():
            return original(self, handle, target_list, fetch_list, *args, **kwargs)
        operators = [*target_list, *(tensor.op for tensor in fetch_list)]
        _before_step(self, operators)
        results = original(self, handle, target_list, fetch_list, *args, **kwargs)
        _after_step(self, operators)
        return results

    session_module.BaseSession._do_run = _do_run


def _hook_callables() -> None:
    """Callables of a session run steps past `Session.run`; tf_keras trains with them in graph mode."""
    make_callable = session_module.BaseSession.make_callable
    from_options = session_module.BaseSession._make_callable_from_options

    def before_first_call(
        session: Any, call: Callable[..., Any], fetches: Iterable[Any]
    ) -> Callable[..., Any]:
        if not distributed():
            return call
        elements = [session.graph.as_graph_element(fetch) for fetch in fetches]
        operators = [getattr(element, "op", element) for element in elements]

        def call_after_broadcast(*args: Any, **kwargs: Any) -> Any:
            if _variables.broadcast_enabled():
                _before_step(session, operators)
            return call(*args, **kwargs)

        return call_after_broadcast

    @functools.wraps(make_callable)
    def hooked_make_callable(
        self: Any, fetches: Any, feed_list: Any = None, accept_options: bool = False
    ) -> Any:
        call = make_callable(self, fetches, feed_list, accept_options)
        if feed_list is not None:
            return call  # goes by Session.run
        handler = session_module._FetchHandler(self.graph, fetches, {})
        return before_first_call(self, call, [*handler.fetches(), *handler.targets()])

    @functools.wraps(from_options)
    def hooked_from_options(self: Any, callable_options: Any) -> Any:
        call = from_options(self, callable_options)
        return before_first_call(self, call, [*callable_options.fetch, *callable_options.target])

    session_module.BaseSession.make_callable = hooked_make_callable
    session_module.BaseSession._make_callable_from_options = hooked_from_options


def _hook_session_manager() -> None:
    original = session_manager.SessionManager.prepare_session

    @functools.wraps(original)
    def prepare_session(self: Any, *args: Any, **kwargs: Any) -> Any:
        with _quiet("preparing"):
            return original(self, *args, **kwargs)

    session_manager.SessionManager.prepare_session = prepare_session


def _before_step(session: Any, operators: list[Any]) -> None:
    graph = session.graph
    if getattr(session, _DONE, False) or not getattr(graph, _TRAINS, False):
        return
    training = descendants(graph, "training", reduced_operators(graph))
    if any(operator.name in training for operator in operators):
        setattr(session, _DONE, True)
        needed = ancestors(operators)
        for operator, names, gradients in noted_updates(graph):
            if operator.name in needed:
                check_same_variables(names, gradients, "the first training step of a session")
        _broadcast(
            session, graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES), "before the first step"
        )


def _after_step(session: Any, operators: list[Any]) -> None:
    graph = session.graph
    initialisers = getattr(graph, _INITIALISERS, None)
    if not initialisers or getattr(_state, "preparing", False):
        return
    initialising = descendants(graph, "initialising", initialisers)
    if any(operator.name in initialising for operator in operators):
        trainable = graph.get_collection(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES)
        _broadcast(session, trainable, "at initialisation")


def _broadcast(session: Any, variables: Iterable[Any], when: str) -> None:
    """Gives all ranks rank 0's values of those of the variables that have a value and can be sent."""
    with _quiet("broadcasting"):
        sendable = [v for v in variables if v.dtype.is_floating or v.dtype.base_dtype in (tf.int32, tf.int64)]
        values = _values(session, sendable)
        operators, feeds = [], {}
        for index, (variable, value) in enumerate(values):
            name = f"variable {index + 1}/{len(values)} {when}, {variable.name}"
            operators.append(variable.initializer)
            feeds[variable.initializer.inputs[1]] = ddl.bcast(value, root=0, name=name)
        if operators and ddl.rank() != 0:
            session.run(operators, feed_dict=feeds)


def _values(session: Any, variables: list[Any]) -> list[tuple[Any, np.ndarray[Any, Any]]]:
    try:
        return list(zip(variables, session.run(variables), strict=True))
    except tf.errors.FailedPreconditionError:
        pass  # some have no value yet; the others are found one by one
    values = []
    for variable in variables:
        with contextlib.suppress(tf.errors.FailedPreconditionError):
            values.append((variable, session.run(variable)))
    return values
