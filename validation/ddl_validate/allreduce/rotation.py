"""In which order peers and their settings take turns, so that what changes on the machine meanwhile hits all
of them alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def interleave(groups: Sequence[Sequence[T]]) -> list[T]:
    """One of each group in turn, until all are taken: a peer's settings are spread over a round."""
    longest = max(map(len, groups), default=0)
    return [group[i] for i in range(longest) for group in groups if i < len(group)]


def order(entries: Sequence[T], number: int, rounds: int) -> list[T]:
    """The entries in the order of round ``number`` (0 …) of ``rounds``.

    Every round goes through all entries in the same circle, from another start. With at least as many rounds
    as entries each start is taken in turn; with fewer, the starts are spread evenly over the circle, so that
    nobody is always among the first.
    """
    if not entries:
        return []
    count = len(entries)
    start = number % count if rounds >= count else number * count // rounds
    return [*entries[start:], *entries[:start]]
