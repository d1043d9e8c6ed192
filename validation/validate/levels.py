"""How much a validation does: levels, and the checks that belong to each."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import ValidateError


@dataclass(frozen=True)
class Level:
    """name: as on the command line. title: for people, with the time that it may take. seconds: of each
    measurement of a probe. steps: of training. ways: of sharing gradients in training. rounds: how often
    the whole is done again. limit: seconds for one check. scales: train on 1, 2, 4 … hosts as well as on all
    """

    name: str
    title: str
    seconds: float
    steps: int
    ways: tuple[str, ...]
    limit: float
    scales: bool
    budget: float


LEVELS = {
    level.name: level
    for level in (
        Level("smoke", "the first look: 5 minutes", 0.3, 10, ("ddl",), 240.0, False, 300.0),
        Level("daily", "the daily run: up to an hour", 2.0, 60, ("ddl", "horovod"), 1200.0, True, 3600.0),
        Level(
            "burn-in",
            "again and again for a day",
            5.0,
            200,
            ("ddl", "horovod"),
            3600.0,
            True,
            86400.0,
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
    found, number = {1, hosts}, 1
    while number < hosts:
        found.add(number)
        number *= 2
    return sorted(found)
