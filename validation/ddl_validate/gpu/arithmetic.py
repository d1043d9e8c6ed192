"""What reductions must give, worked out with numpy in float64, and by how much DDL may differ from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from ..common.timing_loop import PERIOD, offset

Array = npt.NDArray[Any]

DTYPES: dict[str, np.dtype[Any]] = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "float64": np.dtype(np.float64),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "int32": np.dtype(np.int32),
    "int64": np.dtype(np.int64),
}
#: Distance from 1 to the next number.
_EPSILON = {"float32": 2**-23, "float16": 2**-10, "float64": 2**-52, "bfloat16": 2**-7}


def whole_numbers(rank: int, repetition: int, count: int) -> npt.NDArray[np.float32]:
    """Small numbers of a rank, whose sums are exact."""
    period = ((np.arange(PERIOD) + offset(rank, repetition)) % PERIOD).astype(np.float32)
    return np.resize(period, count)


def sum_of_whole_numbers(ranks: int, repetition: int, count: int) -> npt.NDArray[np.float32]:
    """The sum of those of so many ranks."""
    period = sum((whole_numbers(rank, repetition, PERIOD) for rank in range(ranks)), np.zeros(PERIOD))
    return np.resize(np.asarray(period, np.float32), count)


def is_integer(kind: str) -> bool:
    return kind not in _EPSILON


def input_of(kind: str, op: str, count: int, rank: int, seed: int) -> Array:
    """What a rank puts in; every rank can make that of every other one.

    Integers are of the whole range, so that sums and products wrap. Floating point numbers are below 1 in
    size, and near 1 for products. For minima and maxima there is a NaN now and then.
    """
    random = np.random.default_rng([seed, rank])
    dtype = DTYPES[kind]
    if is_integer(kind):
        limits = np.iinfo(dtype)
        return random.integers(limits.min, limits.max, count, dtype=dtype, endpoint=True)
    if op == "product":
        return random.uniform(0.75, 1.25, count).astype(dtype)
    values = random.uniform(-1, 1, count)
    if op in ("min", "max") and count > 1:
        values[random.integers(0, count, 1 + count // 1000)] = np.nan
    return values.astype(dtype)


def reduced(kind: str, op: str, inputs: Sequence[Array]) -> tuple[Array, Array]:
    """The right result in float64, or in the integers' own type, and the largest difference from it.

    A 16-bit sum is rounded once for each rank at most, one of 32 or 64 bits at each of its additions.
    """
    if is_integer(kind):
        return _reduced_integers(op, inputs), np.zeros(len(inputs[0]))
    wide = np.stack([values.astype(np.float64) for values in inputs])
    ranks = len(inputs)
    if op in ("min", "max"):
        lowest = np.minimum.reduce if op == "min" else np.maximum.reduce
        return lowest(wide), np.zeros(wide.shape[1])
    error = _EPSILON[kind] * (ranks + 1)
    if op == "product":
        right = np.multiply.reduce(wide)
        return right, error * np.abs(right)
    share = 1 / ranks if op == "avg" else 1.0
    return wide.sum(axis=0) * share, error * np.abs(wide).sum(axis=0) * share


def _reduced_integers(op: str, inputs: Sequence[Array]) -> Array:
    stacked = np.stack(list(inputs))
    if op == "min":
        return np.asarray(stacked.min(axis=0))
    if op == "max":
        return np.asarray(stacked.max(axis=0))
    dtype = stacked.dtype
    with np.errstate(over="ignore"):
        if op == "product":
            return np.asarray(np.multiply.reduce(stacked, dtype=dtype))
        total = np.add.reduce(stacked, dtype=dtype)
    if op == "sum":
        return np.asarray(total)
    ranks = len(inputs)
    # towards zero; the remainder of the lowest number has the sign of the dividend as well
    towards = total // ranks
    return np.asarray(towards + ((total % ranks != 0) & (total < 0)).astype(dtype))


def first_wrong(got: Array, right: Array, within: Array | float = 0.0) -> str | None:
    """The first element that differs by more than it may, in words."""
    if right.dtype.kind in "iu":
        wrong = got != right
    else:
        seen = got.astype(np.float64)
        both_nan = np.isnan(seen) & np.isnan(right)
        # written so that a NaN on one side is wrong
        wrong = ~(both_nan | (np.abs(seen - right) <= within))
    if not wrong.any():
        return None
    index = int(np.argmax(wrong))
    return f"element {index} of {len(got)} is {got[index]}, not {right[index]} ({int(wrong.sum())} are wrong)"
