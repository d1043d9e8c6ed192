"""What is swept: checked, and as plain JSON, which the study keeps."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from . import objective as objectives
from . import space as spaces
from .errors import SweepError, required

SAMPLERS = ("grid", "random", "tpe", "gp", "cmaes")
PRUNERS = ("median", "halving", "hyperband")


@dataclass(frozen=True)
class Definition:
    """A sweep.

    Attributes:
        identity: What must be the same when it is continued: space, sampler, seed, goal, metric, what runs.
        trials: Their number.
        how: What may change: the code, retries, limit, the folder where trials run, objects of Optuna.
    """

    identity: dict[str, Any]
    trials: int
    how: dict[str, Any]


def define(
    train: Any,
    space: Mapping[str, Any],
    *,
    sampler: Any = None,
    trials: int | None = None,
    maximize: str | None = None,
    minimize: str | None = None,
    seed: int = 0,
    retries: int = 0,
    limit_seconds: float | None = None,
    pruner: Any = None,
) -> Definition:
    """A sweep of the arguments of run().

    Raises:
        SweepError: One of them is wrong.
    """
    space = spaces.checked(space)
    if maximize and minimize:
        raise SweepError("maximize and minimize are both given; a sweep has one of them")
    if retries < 0:
        raise SweepError(f"retries={retries}: give 0 or more")
    if limit_seconds is not None and not limit_seconds > 0:
        raise SweepError(f"limit_seconds={limit_seconds}: give more than 0, or None for no limit")
    if sampler is None:
        sampler = "random" if any(isinstance(parameter, dict) for parameter in space.values()) else "grid"
    _check("sampler", sampler, SAMPLERS)
    objective = objectives.of(train, space)
    how = {"objective": objective, "retries": retries, "limit": limit_seconds, "cwd": os.getcwd()}
    how |= {"sampler": None, "pruner": None}
    if not isinstance(sampler, str):
        how["sampler"] = objectives.pickled(sampler, "the sampler")
        sampler = f"optuna.samplers.{type(sampler).__name__}"
    if pruner is not None:
        _check("pruner", pruner, PRUNERS)
        how["pruner"] = objectives.pickled(pruner, "the pruner")
    key = "program" if "program" in objective else "function"
    identity = {
        "space": space,
        "sampler": sampler,
        "seed": int(seed),
        "goal": "minimize" if minimize else "maximize",
        "metric": minimize or maximize or "value",
        "what runs": {key: objective[key]},
    }
    return Definition(identity, spaces.count(sampler, space, trials), how)


def _check(kind: str, choice: Any, names: tuple[str, ...]) -> None:
    if isinstance(choice, str):
        valid = choice in names
    else:
        module = required(f"optuna.{kind}s", "optuna", f"a {kind} of Optuna")
        valid = isinstance(choice, getattr(module, f"Base{kind.capitalize()}"))
    if not valid:
        raise SweepError(
            f"the {kind} {choice!r} is unknown; take one of {', '.join(names)}, or a {kind} of Optuna"
        )
