"""Has the ranks' weights compared behind the training steps of TF1's sessions.

An update is noted on its graph. Behind a run of a session that made it, the session fetches what is compared.

To be imported behind TensorFlow, as `ddl_drift.tensorflow`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from tensorflow.python.client import session as session_module

import ddl_drift
from ddl_drift.tensorflow import name_of

#: On a graph: its updates.
UPDATES = "_ddl_updates"
#: On a session: the watch of each update.
_WATCHES = "_ddl_watches"
#: Of the variables that are fetched at once to be compared, unless one is larger.
_FETCHED_ELEMENTS = 1 << 24

_state = threading.local()


@dataclasses.dataclass(frozen=True)
class NotedUpdate:
    """An update of a TF1 graph."""

    #: One in it.
    operator: Any
    variables: list[Any]
    #: What kind each gradient has, where ranks are to agree on it before the first step.
    gradients: list[str] = dataclasses.field(default_factory=list)
    #: False for one that is to differ between ranks.
    averages: bool = True


def note(noted: NotedUpdate, kind: str = UPDATES) -> None:
    """Remembers an update on its graph. kind: the attribute under which the graph has it."""
    _attribute(noted.operator.graph, kind, list).append(noted)


def updates_in_run(
    graph: Any, operators: Sequence[Any], kind: str = UPDATES
) -> list[tuple[int, NotedUpdate]]:
    """The noted updates that a run of a session makes, with their numbers.

    Args:
        graph: Of the session.
        operators: What the run fetches. The answer is remembered for them and the number of updates.
        kind: As for `note`.
    """
    updates = getattr(graph, kind, None)
    if not updates:
        return []
    needed_by = _attribute(graph, f"{kind}_needed", dict)
    key = (len(updates), *(operator.name for operator in operators))
    if key not in needed_by:
        needed = _ancestors(operators)
        needed_by[key] = [number for number, noted in enumerate(updates) if noted.operator.name in needed]
    return [(number, updates[number]) for number in needed_by[key]]


def _attribute(owner: Any, name: str, kind: type) -> Any:
    if not hasattr(owner, name):
        setattr(owner, name, kind())
    return getattr(owner, name)


@contextlib.contextmanager
def internal() -> Iterator[None]:
    """Runs of sessions within are no steps of the program: nothing is called around them."""
    before = getattr(_state, "internal", False)
    _state.internal = True
    try:
        yield
    finally:
        _state.internal = before


Hook = Callable[[Any, list[Any]], None]


def hook_runs(before: Hook, after: Hook) -> None:
    """Has functions called around each run of a session.

    Args:
        before: Takes the session and the operators that it is to fetch.
        after: As before; not called where the run has failed.

    Callables of a session run steps past `Session.run`; tf_keras trains with them in graph mode.
    """
    do_run = session_module.BaseSession._do_run
    make_callable = session_module.BaseSession.make_callable
    from_options = session_module.BaseSession._make_callable_from_options

    def around(session: Any, operators: list[Any], run: Callable[[], Any]) -> Any:
        if getattr(_state, "internal", False):
            return run()
        before(session, operators)
        result = run()
        after(session, operators)
        return result

    @functools.wraps(do_run)
    def _do_run(self: Any, handle: Any, target_list: Any, fetch_list: Any, *args: Any, **kwargs: Any) -> Any:
        operators = [*target_list, *(tensor.op for tensor in fetch_list)]
        return around(self, operators, lambda: do_run(self, handle, target_list, fetch_list, *args, **kwargs))

    def hooked(session: Any, call: Callable[..., Any], fetches: Iterable[Any]) -> Callable[..., Any]:
        elements = [session.graph.as_graph_element(fetch) for fetch in fetches]
        operators = [getattr(element, "op", element) for element in elements]
        return lambda *args, **kwargs: around(session, operators, lambda: call(*args, **kwargs))

    @functools.wraps(make_callable)
    def hooked_make_callable(
        self: Any, fetches: Any, feed_list: Any = None, accept_options: bool = False
    ) -> Any:
        call = make_callable(self, fetches, feed_list, accept_options)
        if feed_list is not None:
            return call  # goes by Session.run
        handler = session_module._FetchHandler(self.graph, fetches, {})
        return hooked(self, call, [*handler.fetches(), *handler.targets()])

    @functools.wraps(from_options)
    def hooked_from_options(self: Any, callable_options: Any) -> Any:
        call = from_options(self, callable_options)
        return hooked(self, call, [*callable_options.fetch, *callable_options.target])

    session_module.BaseSession._do_run = _do_run
    session_module.BaseSession.make_callable = hooked_make_callable
    session_module.BaseSession._make_callable_from_options = hooked_from_options


def _ancestors(operators: Sequence[Any]) -> frozenset[str]:
    """The names of the operators that run before one of `operators`, by data or by control, and of these."""

    def leaders(operator: Any) -> Iterator[Any]:
        yield from (tensor.op for tensor in operator.inputs)
        yield from operator.control_inputs

    return reached(operators, leaders)


def reached(roots: Sequence[Any], neighbours: Callable[[Any], Iterator[Any]]) -> frozenset[str]:
    """The names of the operators that are reached from some of a graph, and of these."""
    seen: set[str] = set()
    open_operators = list(roots)
    while open_operators:
        operator = open_operators.pop()
        if operator.name not in seen:
            seen.add(operator.name)
            open_operators.extend(neighbours(operator))
    return frozenset(seen)


class _SessionVariables(ddl_drift.Weights):
    """Variables of a session."""

    def __init__(self, session: Any, variables: list[Any]) -> None:
        super().__init__(
            variables,
            [name_of(variable) for variable in variables],
            [int(variable.shape.num_elements() or 0) for variable in variables],
            [variable.dtype.base_dtype.name for variable in variables],
        )
        self._session = weakref.ref(session)

    def checksums(self, chosen: Sequence[int]) -> Sequence[int]:
        """See Weights. A run of the session fetches as many variables as the memory of one has room for."""
        sums: list[int] = []
        group: list[int] = []
        elements = 0
        for index in [*chosen, None]:
            size = 0 if index is None else self.sizes[index]
            if group and (index is None or elements + size > max(_FETCHED_ELEMENTS, max(self.sizes))):
                sums += [ddl_drift.checksum(value) for value in self._fetch(group)]
                group, elements = [], 0
            if index is not None:
                group.append(index)
                elements += size
        return sums

    def _fetch(self, indices: Sequence[int]) -> list[Any]:
        session = self._session()
        with internal():
            return list(session.run([self.variable(index) for index in indices]))  # type: ignore[union-attr]

    def read(self, index: int) -> np.ndarray[Any, Any]:
        """See Weights."""
        return np.asarray(self._fetch([index])[0])


def compare(session: Any, operators: list[Any], ranks: ddl_drift.Ranks) -> None:
    """Compares the ranks' weights behind a run of a session that was a training step. Collective then.

    Args:
        session: It has run.
        operators: What it fetched.
        ranks: Those that are compared.

    Raises:
        Exception: The ranks have drifted apart.
    """
    updates = updates_in_run(session.graph, operators)
    if not updates or not ddl_drift.enabled(ranks):
        return
    for _, noted in updates:
        if not noted.averages:
            ddl_drift.exclude(noted.variables)
    watches = _attribute(session, _WATCHES, dict)
    for number, noted in updates:
        if not noted.averages:
            continue
        if number not in watches:
            watches[number] = ddl_drift.Watch(f"optimizer {number + 1} of a session", ranks)
            watches[number].watch(_SessionVariables(session, noted.variables))
        watches[number].updated()
