"""Finds ranks that train different variables before they exchange gradients, and names the variables.

Ranks that exchange gradients of different variables would add up different things, or wait for each other for
ever. The names are compared once for each optimizer, at its first update, where all ranks meet anyway to take
over
rank 0's variables.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np

import ddl

_SHOWN = 5


def difference(names: Sequence[str], gradients: Sequence[str], where: str, remedy: str = "") -> str | None:
    """Collective: compares what this rank trains with what the others do.

    Args:
        names: The variables, in the order of the update.
        gradients: What ranks must agree on about each one's gradient, such as "no gradient".
        where: For the error.
        remedy: For the error: what stands for a gradient that a rank does not need.

    Returns:
        An error text that names the variables in which the ranks differ, the same on every rank; None where
        they agree.
    """
    text = "\n".join(f"{name}\t{gradient}" for name, gradient in zip(names, gradients, strict=True)).encode()
    digest = np.frombuffer(hashlib.sha256(text).digest(), np.int32)
    summaries = ddl.all_gather(np.array([len(text), *digest], np.int32), name="digest of trained variables")
    if (summaries == summaries[0]).all():
        return None
    padded = np.zeros(int(summaries[:, 0].max()), np.int32)
    padded[: len(text)] = np.frombuffer(text, np.uint8)
    everyone = ddl.all_gather(padded, name="names of trained variables")
    texts = [
        bytes(row[:length].astype(np.uint8)).decode()
        for row, length in zip(everyone, summaries[:, 0], strict=True)
    ]
    return _error(texts, where, remedy)


def _parse(text: str) -> dict[str, str]:
    return dict(line.split("\t") for line in text.splitlines())


def _error(texts: Sequence[str], where: str, remedy: str) -> str:
    other = next(rank for rank, text in enumerate(texts) if text != texts[0])
    first, second = _parse(texts[0]), _parse(texts[other])
    differences = list(_differences(first, second, other))
    if not differences:
        pairs = zip(first, second, strict=True)
        a, b = next((a, b) for a, b in pairs if a != b)
        differences = [f"their order differs: {a} on rank 0 is where {b} is on rank {other}"]
    more = len(differences) - _SHOWN
    listing = "; ".join(differences[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")
    return (
        f"[ERROR DDL-1-7] the ranks do not train the same variables: {listing}; in {where}; let every rank "
        f"make the same update: gradients for the same variables, in the same order{remedy}"
    )


def _differences(first: dict[str, str], second: dict[str, str], other: int) -> Iterable[str]:
    for name in dict.fromkeys([*first, *second]):
        a, b = first.get(name, "not trained"), second.get(name, "not trained")
        if a != b:
            yield f"{name} ({a} on rank 0, {b} on rank {other})"
