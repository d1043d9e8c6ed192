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
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf
from ddl_drift import sessions
from ddl_drift.tensorflow import name_of
from tensorflow.python.ops import variables as variables_module
from tensorflow.python.training import session_manager

import ddl
from ddl import _drift
from ddl.tensorflow import _variables
from ddl.tensorflow._agreement import check_same_variables
from ddl.tensorflow._gradients import reduced_operators
from ddl.tensorflow._graph import descendants
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
    sessions.hook_runs(_before_run, _after_run)
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


def _before_run(session: Any, operators: list[Any]) -> None:
    if _variables.broadcast_enabled() and distributed():
        _before_step(session, operators)


def _after_run(session: Any, operators: list[Any]) -> None:
    if distributed():
        if _variables.broadcast_enabled():
            _after_step(session, operators)
        sessions.compare(session, operators, _drift.ranks())


def _hook_session_manager() -> None:
    original = session_manager.SessionManager.prepare_session

    @functools.wraps(original)
    def prepare_session(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = getattr(_state, "preparing", False)
        _state.preparing = True
        try:
            return original(self, *args, **kwargs)
        finally:
            _state.preparing = before

    session_manager.SessionManager.prepare_session = prepare_session


def _before_step(session: Any, operators: list[Any]) -> None:
    graph = session.graph
    if getattr(session, _DONE, False) or not getattr(graph, _TRAINS, False):
        return
    training = descendants(graph, "training", reduced_operators(graph))
    if any(operator.name in training for operator in operators):
        setattr(session, _DONE, True)
        for _, noted in sessions.updates_in_run(graph, operators):
            if noted.averages:
                names = [name_of(variable) for variable in noted.variables]
                check_same_variables(names, noted.gradients, "the first training step of a session")
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
    with sessions.internal():
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
