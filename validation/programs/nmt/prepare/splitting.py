"""Which sentences train, which follow the training, and which test it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from ..errors import NmtError
from .cleaning import key

Pair = tuple[str, str]


@dataclass(frozen=True)
class Parts:
    """A corpus, divided; no two sentences are alike in anything but case, numbers and punctuation."""

    train: list[Pair]
    dev: list[Pair]
    test: list[Pair]


def divide(pairs: Iterable[Pair], held_out: int, most: int | None = None) -> Parts:
    """Divides sentences by their own content, so that the same sentences always make the same parts.

    Args:
        pairs: In any order; of those that are alike the first is taken.
        held_out: How many are for each of dev and test.
        most: How many to train on at most.
    """
    seen: tuple[set[str], set[str]] = (set(), set())
    unique: dict[str, Pair] = {}
    for pair in pairs:
        keys = [key(sentence) for sentence in pair]
        if any(text in keys_of_side for text, keys_of_side in zip(keys, seen, strict=True)):
            continue
        for text, keys_of_side in zip(keys, seen, strict=True):
            keys_of_side.add(text)
        unique[hashlib.sha256(keys[0].encode()).hexdigest()] = pair
    drawn = [unique[digest] for digest in sorted(unique)]
    if len(drawn) < 3 * held_out:
        raise NmtError(
            f"{len(drawn)} different pairs of sentences are too few to hold out twice {held_out}; give more "
            "catalogues, or a smaller --held-out"
        )
    train = drawn[2 * held_out :]
    return Parts(train[:most], drawn[held_out : 2 * held_out], drawn[:held_out])
