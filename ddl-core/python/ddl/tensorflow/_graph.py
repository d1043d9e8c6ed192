"""Questions about TF1 graphs."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import Any

from ddl_drift.sessions import reached

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

    cache[key] = (state, reached(roots, followers))
    return cache[key][1]


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
