"""Which update of an optimizer is the outermost one, and where gradients are left as they are.

Shared by the optimizers of all frameworks and libraries, since one kind may wrap another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class OutermostCall(threading.local):
    """Tells an update from those that wrapping optimizers make within it, which must not communicate.

    Those within may be in a branch that not all ranks take, as with loss scaling.
    """

    def __init__(self) -> None:
        self._depth = 0
        #: True within `no_averaging`.
        self.unaveraged = False

    @property
    def nested(self) -> bool:
        """True within an update of an optimizer that has dealt with the gradients."""
        return self._depth > 0

    @property
    def inside(self) -> bool:
        """True where nothing is averaged: in a nested update, and within `no_averaging`."""
        return self._depth > 0 or self.unaveraged

    def __enter__(self) -> OutermostCall:
        self._depth += 1
        return self

    def __exit__(self, *exception: Any) -> None:
        self._depth -= 1


update = OutermostCall()


def hook_overrides(base: Any, method: str, hook: Callable[[type], None]) -> None:
    """Hooks a method of a class, and of all classes that replace it, also of those that are defined later.

    Args:
        base: The class.
        method: The name of the method.
        hook: Replaces the method of the class that it gets, once for each that has one of its own.
    """

    def hook_own(cls: Any) -> None:
        function = vars(cls).get(method)
        if function is not None and not hasattr(function, "_hooked_by_ddl"):
            hook(cls)
            vars(cls)[method]._hooked_by_ddl = True

    def hook_all(cls: Any) -> None:
        hook_own(cls)
        for subclass in cls.__subclasses__():
            hook_all(subclass)

    original = vars(base).get("__init_subclass__")

    def __init_subclass__(cls: Any, /, **more: Any) -> None:
        if original is not None:
            original.__get__(None, cls)(**more)
        else:
            super(base, cls).__init_subclass__(**more)
        hook_own(cls)

    hook_all(base)
    base.__init_subclass__ = classmethod(__init_subclass__)


@contextmanager
def no_averaging() -> Iterator[None]:
    """Within, optimizers use the gradients of this rank as they are.

    For updates that belong to one rank alone, say of a model that only it trains, or to measure what the
    exchange costs. What counts is the setting when a graph or tf.function is made. `grads_reduce`,
    `DistributedGradientTape` and DistributedDataParallel average all the same. Weights that are updated so
    are no longer compared between the ranks, in `no_averaging` and behind it.
    """
    before, update.unaveraged = update.unaveraged, True
    try:
        yield
    finally:
        update.unaveraged = before
