"""Default arguments of functions within a block, as contrib.framework and slim had them."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_KEY = "_ddl_tf1_arg_scope_key"
_state = threading.local()

#: Of each function, by its key, the arguments.
Scope = dict[str, dict[str, Any]]


def _current() -> Scope:
    return getattr(_state, "scopes", [{}])[-1]  # type: ignore[no-any-return]


def current_arg_scope() -> Scope:
    """Returns the arguments that are in force, for a later `with arg_scope(...)`."""
    return {key: dict(arguments) for key, arguments in _current().items()}


def has_arg_scope(function: Callable[..., Any]) -> bool:
    """Whether arg_scope knows the function."""
    return hasattr(function, _KEY)


def add_arg_scope(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a function that takes default arguments from arg_scope."""
    # A factory's functions share one name.
    key = f"{function.__module__}.{function.__qualname__}.{id(function)}"

    @functools.wraps(function)
    def with_defaults(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **{**_current().get(key, {}), **kwargs})

    setattr(with_defaults, _KEY, key)
    return with_defaults


@contextlib.contextmanager
def arg_scope(functions: Any, **kwargs: Any) -> Iterator[Scope]:
    """Sets default arguments of functions for the calls in a block.

    Args:
        functions: A list of functions that add_arg_scope has made; or a scope that arg_scope gave.
        kwargs: The arguments.

    Raises:
        ValueError: A function was not made by add_arg_scope, or a scope comes with arguments.
    """
    if isinstance(functions, Mapping):
        if kwargs:
            raise ValueError("arg_scope takes a scope or arguments, not both: open two blocks")
        scope: Scope = {key: dict(arguments) for key, arguments in functions.items()}
    else:
        scope = current_arg_scope()
        for function in functions:
            if not has_arg_scope(function):
                raise ValueError(
                    f"{function!r} takes no arguments of arg_scope: decorate it with add_arg_scope"
                )
            key = getattr(function, _KEY)
            scope[key] = {**scope.get(key, {}), **kwargs}
    if not hasattr(_state, "scopes"):
        _state.scopes = [{}]
    _state.scopes.append(scope)
    try:
        yield scope
    finally:
        _state.scopes.pop()
