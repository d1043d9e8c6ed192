"""What a sweep varies, as plain JSON: for each parameter a list of values, or a range of uniform()."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from .errors import SweepError

#: By name a list of values, or {"uniform": [low, high], "integer": …, "log": …}.
Space = dict[str, Any]
#: Parameters that the words of a program could not tell from what else is put into them.
RESERVED = ("params", "folder", "number")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RANGE = re.compile(r"(?P<low>[^:]+?)\.\.(?P<high>[^:]+)(?P<marks>(?::(?:log|float))*)")


def uniform(low: float, high: float, *, integer: bool = False, log: bool = False) -> dict[str, Any]:
    """A parameter that is a number from `low` to `high`, both included.

    Args:
        low: The smallest value.
        high: The largest value.
        integer: Only whole numbers.
        log: Spread evenly by their logarithm, as for learning rates.

    Raises:
        SweepError: Not a range, or a logarithm of what has none.
    """
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise SweepError(f"uniform({low}, {high}): the first must be smaller than the second, both finite")
    if log and low <= 0:
        raise SweepError(f"uniform({low}, {high}, log=True): logarithms need numbers above 0")
    if integer and (low != int(low) or high != int(high)):
        raise SweepError(f"uniform({low}, {high}, integer=True): both ends must be whole numbers")
    kind = int if integer else float
    return {"uniform": [kind(low), kind(high)], "integer": integer, "log": log}


def checked(description: Mapping[str, Any]) -> Space:
    """The space of what a user gave, with Python's own values in place of numpy's.

    Raises:
        SweepError: A name or a value is none.
    """
    space: Space = {}
    for name, parameter in description.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name in RESERVED:
            raise SweepError(
                f"{name!r} cannot be the name of a parameter; use letters, digits and _, and none of "
                f"{', '.join(RESERVED)}"
            )
        try:
            space[name] = _parameter(parameter)
        except (TypeError, SweepError) as error:
            raise SweepError(f"parameter {name}: {error}") from None
    if not space:
        raise SweepError("nothing to vary: the space is empty; give at least one parameter")
    return space


def _parameter(entry: Any) -> Any:
    if isinstance(entry, Mapping):
        ends = entry.get("uniform")
        if set(entry) - {"uniform", "integer", "log"} or not isinstance(ends, list) or len(ends) != 2:
            raise SweepError(
                f'{dict(entry)!r} is no range; write {{"uniform": [16, 256], "integer": true, "log": true}}'
            )
        return uniform(*ends, integer=bool(entry.get("integer")), log=bool(entry.get("log")))
    if isinstance(entry, str | bytes) or not (isinstance(entry, Sequence) or hasattr(entry, "tolist")):
        raise SweepError(f"{entry!r} is no list of values and no range; write [{entry!r}]")
    values = [value.tolist() if hasattr(value, "tolist") else value for value in entry]
    if not values:
        raise SweepError("its list of values is empty; give at least one")
    try:
        plain: list[Any] = json.loads(json.dumps(values, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise SweepError(
            f"the values {values!r} cannot be written as JSON: {error}; give numbers, texts, booleans, None, "
            "or lists of them, such as the name of an optimizer in place of the optimizer"
        ) from None
    return plain


def parse_parameter(text: str) -> tuple[str, Any]:
    """A parameter of a command line: `rate=0.1,0.01`, `width=16..256:log`, `drop=0..1`, `n=1..8:float`."""
    name, _, rest = text.partition("=")
    if not _NAME.fullmatch(name) or not rest:
        raise SweepError(f"--param {text}: write NAME=VALUE,VALUE,… or NAME=LOW..HIGH[:log][:float]")
    if ".." not in rest:
        return name, [_scalar(word) for word in rest.split(",")]
    match = _RANGE.fullmatch(rest)
    ends = [_scalar(match[end]) for end in ("low", "high")] if match else []
    if match is None or not all(type(end) in (int, float) for end in ends):
        raise SweepError(f"--param {text}: a range is LOW..HIGH of numbers, then :log or :float or both")
    integer = "float" not in match["marks"] and all(isinstance(end, int) for end in ends)
    try:
        return name, uniform(*ends, integer=integer, log="log" in match["marks"])
    except SweepError as error:
        raise SweepError(f"--param {text}: {error}") from None


def _scalar(word: str) -> Any:
    literals = {"true": True, "false": False, "none": None}
    if word.lower() in literals:
        return literals[word.lower()]
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            if math.isfinite(number := kind(word)):
                return number
    return word


def count(sampler: str, space: Space, trials: int | None) -> int:
    """How many trials there are.

    Raises:
        SweepError: The number is missing, or a grid has none.
    """
    if trials is not None and trials < 1:
        raise SweepError(f"{trials} trials; ask for at least one")
    if sampler != "grid":
        if trials is None:
            raise SweepError(f"how many trials? The sampler {sampler} has no end; give trials (--trials N)")
        return trials
    for name, parameter in space.items():
        if isinstance(parameter, dict):
            raise SweepError(
                f"parameter {name} is a range, of which a grid has no list; give a list of values, or take "
                'sampler="random"'
            )
    whole = math.prod(map(len, space.values()))
    return whole if trials is None else min(trials, whole)


def combination(space: Space, number: int) -> dict[str, Any]:
    """One of all combinations of the values, where the last parameter's changes fastest."""
    return dict(
        zip(space, next(itertools.islice(itertools.product(*space.values()), number, None)), strict=True)
    )
