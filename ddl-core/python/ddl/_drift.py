"""What the comparison of the ranks' weights (`ddl_drift`) needs of `ddl`, and scripts that average
nothing.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import ddl_drift
import numpy as np
from ddl_drift import exclude as exclude_from_drift_check

import ddl

__all__ = ["Unaveraged", "averages_nothing", "enabled", "exclude_from_drift_check", "ranks"]

#: So many updates are looked at together by a script that averages nothing.
UNAVERAGED_UPDATES = 11


class DdlRanks:
    """The ranks by calls of `ddl`, as `ddl_drift.Ranks`."""

    exclusion = "ddl.exclude_from_drift_check"
    same_figures = "callbacks that set it by a rank's own loss need ddl.DDLCallback() before them"

    def __init__(self) -> None:
        self.rank, self.size = ddl.rank(), ddl.size()

    def error(self, text: str) -> Exception:
        """See Ranks."""
        return ddl.DDLError(text, 7)

    def start_maximum(self, values: np.ndarray[Any, Any], name: str) -> Callable[[], np.ndarray[Any, Any]]:
        """See Ranks."""
        pending = ddl.allreduce_start(values, op="max", name=name)
        return pending.wait

    def gather(self, values: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
        """See Ranks."""
        return np.asarray(ddl.all_gather(values, name=name))

    def broadcast(self, values: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
        """See Ranks."""
        return np.asarray(ddl.bcast(values, name=name))


@functools.cache
def ranks() -> DdlRanks:
    """All ranks."""
    return DdlRanks()


#: Calls of DDL by which no gradients are averaged.
_other_calls = 0


def _calls() -> int:
    return int(ddl.stats()["calls"])


@contextlib.contextmanager
def averages_nothing() -> Iterator[None]:
    """What is called within is no average of gradients: broadcasts, averages of metrics, comparisons."""
    global _other_calls
    if not ddl.is_initialized():
        yield
        return
    before = _calls() - _other_calls
    try:
        yield
    finally:
        _other_calls = _calls() - before


@functools.cache
def enabled() -> bool:
    """Whether the ranks are compared; asked in every step."""
    return ddl_drift.enabled(ranks())


class Unaveraged:
    """Notices a script that updates weights on this rank without ever averaging. Local.

    Where another library may average (Horovod, mpi4py) nothing can be said.
    """

    def __init__(self) -> None:
        self._done = False
        self._updates = 0
        self._calls = 0
        self._sum = 0

    def needs_updates(self) -> bool:
        """Whether `updated` still wants to be called."""
        return not self._done

    def stop(self) -> None:
        """Called where the script averages."""
        self._done = True

    def updated(self, weights: ddl_drift.Weights) -> None:
        """Called where the script has gradients of weights.

        Raises:
            DDLError: The weights have changed, and no call of DDL that may have averaged was made meanwhile.
        """
        if self._done or not weights.names:
            return
        if not enabled() or any(library in sys.modules for library in ("horovod", "mpi4py")):
            self._done = True
            return
        self._updates += 1
        if 1 < self._updates < UNAVERAGED_UPDATES:
            return
        calls = _calls() - _other_calls
        smallest = weights.smallest(range(len(weights.names)))
        (sum_,) = weights.checksums([smallest])
        if self._updates > 1:
            self._done = calls != self._calls
            if not self._done and sum_ != self._sum:
                self._updates = 0
                raise ddl.DDLError(
                    f"[ERROR DDL-1-7] this rank has updated weights {UNAVERAGED_UPDATES - 1} times, "
                    f"{weights.names[smallest]} among them, and averaged nothing: each of the {ddl.size()} "
                    "ranks trains a model of its own; average the gradients (an optimizer that DDL knows, "
                    "ddl.DistributedGradientTape, DistributedDataParallel), or, where each rank is to train "
                    "a model of its own, put the training into `with ddl.no_averaging():`; "
                    f"{ddl_drift.SWITCH}=0 switches this check off",
                    7,
                )
        self._calls, self._sum, self._updates = calls, sum_, 1
