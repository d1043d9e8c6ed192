"""Sums of whole numbers, which every type holds exactly in any order; and what the ranks' results say."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_EXACT_BFLOAT16 = 256  # whole numbers up to it
_EXACT_FLOAT32 = 1 << 24
_LARGEST = 1000


def largest(kind: str, ranks: int) -> int:
    """The largest number that a rank may add for the sum of all to be exact."""
    return 1 if kind == "bfloat16" or ranks * _LARGEST > _EXACT_FLOAT32 else _LARGEST


def whole_numbers(rank: int, size: int, count: int, most: int) -> NDArray[np.float64]:
    """What the rank of this number, of `count`, adds: from -most to most. Where most is 1, not more than
    _EXACT_BFLOAT16 ranks add anything but 0 to the same element.
    """
    import numpy as np

    index = np.arange(size, dtype=np.int64)
    mixed = (index * 2654435761 + (rank + 1) * 40503 * 65537) ^ (index >> 3)
    values = (mixed >> 7) % (2 * most + 1) - most
    if most == 1 and count > _EXACT_BFLOAT16:
        every = -(-count // _EXACT_BFLOAT16)
        values[(index + rank) % every != 0] = 0
    return values.astype(np.float64)


def judged(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Judge the ranks of one group. wrong: ranks with a wrong sum. differs: ranks whose sums of fractions are
    not those of most ranks, or not the same each time."""
    usual, _ = Counter(digest for result in results for digest in result["digests"]).most_common(1)[0]
    return {
        "wrong": [rank for rank, result in enumerate(results) if result["wrong"]],
        "differs": [
            rank
            for rank, result in enumerate(results)
            if any(digest != usual for digest in result["digests"])
        ],
        "elements": sum(sum(result["wrong"].values()) for result in results),
        "types": sorted({name for result in results for name in result["wrong"]}),
    }


def is_wrong(verdict: dict[str, Any]) -> bool:
    return bool(verdict["wrong"] or verdict["differs"])
