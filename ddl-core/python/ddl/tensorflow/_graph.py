"""Questions about TF1 graphs."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

_found: weakref.WeakKeyDictionary[Any, dict[str, tuple[tuple[int, int], frozenset[str]]]] = (
    weakref.WeakKeyDictionary()
)


def descendants(graph: Any, key: str, roots: Sequence[Any]) -> frozenset[str]:
    """The names of the operators that run after one of `roots`, by data or by control, and of the roots.

    Remembered under `key` until the graph or the number of roots changes.
    """
    state = (graph.version, len(roots))
    cache = _found.setdefault(graph, {})
    if key in cache and cache[key][0] == state:
        return cache[key][1]

    def followers(operator: Any) -> Iterator[Any]:
        for output in operator.outputs:
            yield from output.consumers()
        yield from operator._control_outputs

    cache[key] = (state, _reached(roots, followers))
    return cache[key][1]


def ancestors(operators: Sequence[Any]) -> frozenset[str]:
    """The names of the operators that run before one of `operators`, by data or by control, and of these."""

    def leaders(operator: Any) -> Iterator[Any]:
        yield from (tensor.op for tensor in operator.inputs)
        yield from operator.control_inputs

    return _reached(operators, leaders)


def _reached(roots: Sequence[Any], neighbours: Callable[[Any], Iterator[Any]]) -> frozenset[str]:
    seen: set[str] = set()
    open_operators = list(roots)
    while open_operators:
        operator = open_operators.pop()
        if operator.name not in seen:
            seen.add(operator.name)
            open_operators.extend(neighbours(operator))
    return frozenset(seen)


def outermost(tensor: Any) -> Any:
    """The tensor that a function body's placeholder stands for, through any number of enclosing functions."""
    while True:
        captures = getattr(tensor.graph, "captures", None) if hasattr(tensor, "graph") else None
        if not captures:
            return tensor
        for outer, inner in captures:
            if inner is tensor:
                tensor = outer
                break
        else:
            return tensor
