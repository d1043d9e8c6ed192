"""Which parameters a trial gets: all combinations, random ones, or what Optuna asks for."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import space as spaces
from .errors import SweepError

#: Samplers of Optuna that have a name here; others are given as objects.
OPTUNA_NAMES = ("tpe", "gp", "cmaes")
NAMES = ("grid", "random", *OPTUNA_NAMES)


@dataclass(frozen=True)
class Sampler:
    """One that needs no memory: the parameters of a trial follow from its number alone, wherever it runs.

    name: "grid" or "random".
    """

    name: str
    space: spaces.Space
    seed: int

    def params(self, number: int) -> dict[str, Any]:
        if self.name == "grid":
            return next(itertools.islice(spaces.combinations(self.space), number, None))
        generator = np.random.default_rng([self.seed, number])
        return {name: parameter.draw(generator) for name, parameter in self.space.items()}


def count(name: str, space: spaces.Space, trials: int | None) -> int:
    """How many trials there are.

    Raises:
        SweepError: The number is missing, or a grid has none.
    """
    if trials is not None and trials < 1:
        raise SweepError(f"{trials} trials; ask for at least one")
    if name == "grid":
        next(spaces.combinations(space))  # a range is refused here
        whole = spaces.grid_size(space)
        return whole if trials is None else min(trials, whole)
    if trials is None:
        raise SweepError(f"how many trials? The sampler {name} has no end; give trials (--trials N)")
    return trials


def default(space: spaces.Space) -> str:
    """A grid where all parameters are lists, else random."""
    lists = all(isinstance(parameter, spaces.Choice) for parameter in space.values())
    return "grid" if lists else "random"
