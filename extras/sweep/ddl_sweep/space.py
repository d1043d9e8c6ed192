"""What a sweep varies: parameters with lists of values, or with ranges of numbers."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import SweepError

#: Parameters that the words of a program could not tell from what else is put into them.
RESERVED = ("params", "folder", "number")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RANGE = re.compile(r"(?P<low>[^:]+?)\.\.(?P<high>[^:]+)(?P<marks>(?::[a-z]+)*)")


@dataclass(frozen=True)
class Choice:
    """One of some values."""

    values: tuple[Any, ...]

    def draw(self, generator: np.random.Generator) -> Any:
        return self.values[int(generator.integers(len(self.values)))]

    def to_json(self) -> Any:
        return list(self.values)


@dataclass(frozen=True)
class Uniform:
    """A number of a range; both ends belong to it. See uniform()."""

    low: float
    high: float
    integer: bool = False
    log: bool = False

    def draw(self, generator: np.random.Generator) -> Any:
        # Integers are drawn from half a step more on either side, so that the ends are as likely as the rest.
        edge = 0.5 if self.integer else 0.0
        low, high = self.low - edge, self.high + edge
        if self.log:
            drawn = math.exp(generator.uniform(math.log(low), math.log(high)))
        else:
            drawn = generator.uniform(low, high)
        drawn = min(max(drawn, self.low), self.high)
        return round(drawn) if self.integer else float(drawn)

    def to_json(self) -> Any:
        return {"uniform": [self.low, self.high], "integer": self.integer, "log": self.log}


Parameter = Choice | Uniform
Space = dict[str, Parameter]


def uniform(low: float, high: float, *, integer: bool = False, log: bool = False) -> Uniform:
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
    return (
        Uniform(int(low), int(high), True, log) if integer else Uniform(float(low), float(high), False, log)
    )


def choice(values: Sequence[Any]) -> Choice:
    """A parameter that has one of these values; a plain list is the same."""
    plain = tuple(plain_value(value) for value in values)
    if not plain:
        raise SweepError("a parameter with an empty list of values; give at least one")
    return Choice(plain)


def plain_value(value: Any) -> Any:
    """A value as JSON keeps it; numpy's numbers become Python's.

    Raises:
        SweepError: JSON cannot keep it.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, tuple):
        value = list(value)
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        raise SweepError(
            f"the value {value!r} of a parameter cannot be written as JSON; give numbers, texts, booleans, "
            "None, or lists of them, such as the name of an optimizer in place of the optimizer"
        ) from None
    return value


def space_of(description: Mapping[str, Any]) -> Space:
    """The space of what a user gave: lists of values, uniform(…), or their form in JSON and TOML."""
    space: Space = {}
    for name, value in description.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name in RESERVED:
            raise SweepError(
                f"{name!r} cannot be the name of a parameter; use letters, digits and _, and none of "
                f"{', '.join(RESERVED)}"
            )
        space[name] = _parameter(name, value)
    if not space:
        raise SweepError("nothing to vary: the space is empty; give at least one parameter")
    return space


def _parameter(name: str, value: Any) -> Parameter:
    if isinstance(value, Choice | Uniform):
        return value
    if isinstance(value, Mapping):
        unknown = set(value) - {"uniform", "integer", "log"}
        ends = value.get("uniform")
        if unknown or not isinstance(ends, list) or len(ends) != 2:
            raise SweepError(
                f"parameter {name}: {dict(value)!r} is no range; write "
                '{"uniform": [16, 256], "integer": true, "log": true}'
            )
        try:
            return uniform(*ends, integer=bool(value.get("integer")), log=bool(value.get("log")))
        except (TypeError, SweepError) as error:
            raise SweepError(f"parameter {name}: {error}") from None
    if isinstance(value, str | bytes) or not isinstance(value, Sequence | np.ndarray | range):
        raise SweepError(f"parameter {name}: {value!r} is no list of values and no range; write [{value!r}]")
    try:
        return choice(list(value))
    except SweepError as error:
        raise SweepError(f"parameter {name}: {error}") from None


def parse_parameter(text: str) -> tuple[str, Parameter]:
    """A parameter of a command line: `rate=0.1,0.01`, `width=16..256:log`, `drop=0..1`, `n=1..8:float`."""
    name, equals, rest = text.partition("=")
    if not equals or not _NAME.fullmatch(name) or not rest:
        raise SweepError(f"--param {text}: write NAME=VALUE,VALUE,… or NAME=LOW..HIGH[:log][:float]")
    match = _RANGE.fullmatch(rest)
    if match is None:
        return name, choice([_scalar(word) for word in rest.split(",")])
    marks = match["marks"].split(":")[1:]
    low, high = _scalar(match["low"]), _scalar(match["high"])
    numbers = all(isinstance(end, int | float) and not isinstance(end, bool) for end in (low, high))
    if not numbers or set(marks) - {"log", "float"}:
        raise SweepError(f"--param {text}: a range is LOW..HIGH of numbers, then :log or :float or both")
    integer = isinstance(low, int) and isinstance(high, int) and "float" not in marks
    try:
        return name, uniform(low, high, integer=integer, log="log" in marks)
    except SweepError as error:
        raise SweepError(f"--param {text}: {error}") from None


def _scalar(word: str) -> Any:
    literals = {"true": True, "false": False, "none": None}
    if word.lower() in literals:
        return literals[word.lower()]
    for kind in (int, float):
        try:
            number = kind(word)
        except ValueError:
            continue
        if math.isfinite(number):
            return number
    return word


def to_json(space: Space) -> dict[str, Any]:
    return {name: parameter.to_json() for name, parameter in space.items()}


def combinations(space: Space) -> Iterator[dict[str, Any]]:
    """All combinations of the values, the last parameter's changing fastest."""
    lists = []
    for name, parameter in space.items():
        if isinstance(parameter, Uniform):
            raise SweepError(
                f"parameter {name} is a range, of which a grid has no list; give a list of values, or take "
                'sampler="random"'
            )
        lists.append(parameter.values)
    for values in itertools.product(*lists):
        yield dict(zip(space, values, strict=True))


def grid_size(space: Space) -> int:
    return math.prod(len(parameter.values) for parameter in space.values() if isinstance(parameter, Choice))
