"""How much a validation does: levels, and the checks that belong to each."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import ValidateError

BURN_IN = "burn-in"


@dataclass(frozen=True)
class Level:
    """name: as on the command line. title: for people, with the time that it may take. seconds: of each
    measurement of a probe. steps: of training. ways: of training (checks/training.py). limit: seconds for
    one program of a check. scales: train on 1, 2, 4 … hosts as well as on one and on all. budget: seconds;
    after them no further round begins. sustained: seconds of load without a rest, 0 for none. tolerance:
    share of an expected figure that may be missing
    """

    name: str
    title: str
    seconds: float
    steps: int
    limit: float
    budget: float
    ways: tuple[str, ...] = ("single", "ddl", "horovod")
    scales: bool = True
    sustained: float = 0.0
    tolerance: float = 0.15

    @property
    def repeats(self) -> bool:
        """Are all checks made again and again, until the budget is spent?"""
        return self.name == BURN_IN


LEVELS = {
    level.name: level
    for level in (
        Level(
            name="smoke",
            title="the first look: 5 minutes",
            seconds=0.3,
            steps=10,
            ways=("single", "ddl"),
            limit=240,
            scales=False,
            budget=300,
            tolerance=0.3,
        ),
        Level(
            name="daily",
            title="the daily run: up to an hour",
            seconds=2,
            steps=60,
            limit=1200,
            budget=3600,
            sustained=180,
        ),
        Level(
            name=BURN_IN,
            title="again and again, for a day (--hours)",
            seconds=5,
            steps=200,
            limit=3600,
            budget=86400,
            sustained=600,
        ),
    )
}


def level_of(name: str) -> Level:
    if name not in LEVELS:
        raise ValidateError(f"--level {name!r}: one of: {', '.join(LEVELS)}")
    return LEVELS[name]


def scales(hosts: int, all_of_them: bool) -> list[int]:
    """Numbers of hosts to train on: 1, 2, 4 … and all of them; or 1 and all."""
    if hosts < 1:
        raise ValidateError("no hosts to train on")
    if not all_of_them:
        return sorted({1, hosts})
    numbers, number = {1, hosts}, 1
    while number < hosts:
        numbers.add(number)
        number *= 2
    return sorted(numbers)
