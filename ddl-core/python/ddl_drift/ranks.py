"""What the comparison needs of the ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np


class Ranks(Protocol):
    """How a framework's ranks exchange arrays of numpy, in the order of their program.

    rank, size: as in MPI. exclusion: what a program calls to exclude weights. same_figures: how a program
    makes the figures, by which the learning rate is set, the same on all ranks.
    """

    rank: int
    size: int
    exclusion: str
    same_figures: str

    def error(self, text: str) -> Exception:
        """The exception to raise."""
        ...

    def start_maximum(self, values: np.ndarray[Any, Any], name: str) -> Callable[[], np.ndarray[Any, Any]]:
        """Starts an all-reduce (MAX) of int32; the function that is returned waits for its result."""
        ...

    def gather(self, values: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
        """The arrays of all ranks, float64 or int64 of one axis, rank by rank."""
        ...

    def broadcast(self, values: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
        """Rank 0's array, float32 or float64."""
        ...
