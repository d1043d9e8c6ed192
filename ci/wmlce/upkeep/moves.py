"""Which packages an update moves, which of them only together, and what is held back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import networkx as nx

from wmlce.upkeep.outdated import Standing, id_of


@dataclass(frozen=True)
class Move:
    """A locked package and the version that it is to have.

    wheel: is it of wheels.lock.yaml? Otherwise it is of sources.lock.yaml
    root:  is the version written in wheels.yaml? Otherwise pip chooses it, up to the newest
    """

    package: str
    origin: str
    wheel: bool
    root: bool
    old: str
    new: str
    recipes: tuple[str, ...]

    @property
    def id(self) -> str:
        """The id of the package's Standing."""
        return id_of(self.package, self.origin, self.wheel)

    def title(self) -> str:
        return f"{self.package} {self.old} -> {self.new}"


Group = tuple[Move, ...]
"""Moves that are made together or not at all."""


@dataclass(frozen=True)
class Held:
    """A package with a newer version that is not moved, and why."""

    package: str
    origin: str
    version: str
    newest: str
    reasons: list[str]


def choose(
    items: Sequence[Standing], named: Sequence[str], hold: Sequence[str]
) -> tuple[list[Group], list[Held]]:
    """Groups of moves, and what is held back. Of what is named the comments and other packages' needs are no
    hindrance: pip and the builds decide.
    """
    moving = {item.id: item for item in items if item.moves}
    wheels = {item.package: key for key, item in moving.items() if item.wheel}
    reasons: dict[str, list[str]] = {}
    for key, item in moving.items():
        if item.is_named(hold):
            reasons[key] = ["--hold"]
        elif not item.is_named(named):
            causes = [text for text in item.held if text not in item.holders.values()]
            causes += [text for who, text in item.holders.items() if who not in wheels]
            if causes:
                reasons[key] = causes
    _spread(moving, wheels, reasons, named)
    groups, held = [], {key: reasons[key] for key in reasons}
    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from(key for key in moving if key not in held)
    for key in list(graph):
        graph.add_edges_from((key, wheels[who]) for who in moving[key].holders if wheels.get(who) in graph)
    for part in nx.connected_components(graph):
        members = [moving[key] for key in sorted(part)]
        if named and not any(item.is_named(named) for item in members):
            continue  # looked at because a named one might have needed it
        groups.append(tuple(_move(item) for item in members))
    held_back = [
        Held(moving[key].package, moving[key].origin, moving[key].version, str(moving[key].newest), causes)
        for key, causes in sorted(held.items())
    ]
    return sorted(groups, key=lambda group: group[0].id), held_back


def _spread(
    moving: dict[str, Standing], wheels: dict[str, str], reasons: dict[str, list[str]], named: Sequence[str]
) -> None:
    """What needs the move of one that is held is held, too."""
    while True:
        more = {
            key: [text for who, text in item.holders.items() if wheels.get(who) in reasons]
            for key, item in moving.items()
            if key not in reasons and not item.is_named(named)
        }
        more = {key: causes for key, causes in more.items() if causes}
        if not more:
            return
        reasons |= more


def _move(item: Standing) -> Move:
    new = str(item.newest)
    if item.wheel and "+" in item.version and "+" not in new:
        # a build of an index of its own, which the others do not list
        new = f"{new}+{item.version.partition('+')[2]}"
    return Move(item.package, item.origin, item.wheel, item.root, item.version, new, tuple(item.recipes))
