"""Numbers that a trial gives: returned by a function, or printed as lines `accuracy: 0.97`."""

from __future__ import annotations

import contextlib
import math
import numbers
import re
from collections.abc import Mapping
from typing import Any

_LINE = re.compile(
    r"^[ \t]*(?P<name>[A-Za-z_][\w/ .-]*?)[ \t]*[:=][ \t]*"
    r"(?P<number>[+-]?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|nan|inf))[ \t\r]*$",
    re.MULTILINE | re.IGNORECASE,
)


def printed(text: str) -> dict[str, float]:
    """The last number of each name that a program has printed as `name: number` on a line of its own."""
    return {match["name"]: float(match["number"]) for match in _LINE.finditer(text)}


def number(candidate: Any) -> float:
    """A number of Python, numpy, or an array or tensor with one element.

    Raises:
        ValueError: It is none, or not finite.
    """
    item = candidate.item() if hasattr(candidate, "item") else candidate
    if not isinstance(item, numbers.Real):
        raise ValueError(f"{item!r} is no number")
    if not math.isfinite(item):
        raise ValueError(f"{item} is not finite")
    return float(item)


def returned(result: Any, metric: str) -> dict[str, float]:
    """What a function returned as numbers by name; a single number has the name of what is optimized.

    Raises:
        ValueError: The number that is optimized is missing, or no finite number.
    """
    by_name = dict(result) if isinstance(result, Mapping) else {metric: result}
    if metric not in by_name:
        raise ValueError(f"the trial gave {sorted(map(str, by_name)) or 'nothing'}, and no {metric!r}")
    try:
        metrics = {metric: number(by_name.pop(metric))}
    except ValueError as error:
        raise ValueError(f"{metric}: {error}") from None
    for name, other in by_name.items():
        with contextlib.suppress(ValueError):  # what is not optimized may be missing
            metrics[str(name)] = number(other)
    return metrics
