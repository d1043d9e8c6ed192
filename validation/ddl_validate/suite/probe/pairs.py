"""Which link, path or uplink is slow: hosts send to each other, in pairs that rank 0 chooses.

One rank a host. Rank 0 runs the search (search.py) and tells each rank with whom to measure (transfer.py),
all pairs of a round at once; but hosts that share a machine, as emulated ones do, take turns, other than
those that together load the uplinks of two racks.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..search import Outcome, Pair, Rates, search, slower
from . import fabric
from .transfer import TAGS, NoAnswer, Transfer
from .world import FIRST_FREE_TAG, World, options

_ORDER, _DONE, _TRAFFIC = 3, 4, 5  # tags
_TRANSFERS = 1000  # then tags are used again
_SPARE_SECONDS = 3.0  # that a rank is given to say that it had no answer
_MOST_SILENCES = 2  # then a host is not asked again


class Director:
    """Rank 0: gives orders, takes part like the others, and knows who did not answer."""

    def __init__(
        self, world: World, racks: Sequence[int] | None, tolerance: float, seconds: float, limit: float
    ) -> None:
        self.world, self.tolerance, self.seconds, self.limit = world, tolerance, seconds, limit
        self.best = 0.0  # rate of a pair in a rack
        self.racks = racks or [0] * world.hosts
        self.number = 0
        self.latency: dict[Pair, float] = {}
        self.silences = [0] * world.hosts
        self.owed: list[set[int]] = [set() for _ in range(world.hosts)]  # transfers without a word yet
        self.unfinished = False

    def measure(self, pairs: list[Pair]) -> list[Rates]:
        rates: dict[Pair, Rates] = {}
        for together in self._in_turns(pairs):
            rates |= self._at_once(together)
        if self.world.shared:
            self._once_more(rates)
        return [rates[pair] for pair in pairs]

    def _once_more(self, rates: dict[Pair, Rates]) -> None:
        """On a machine that hosts share, other programs slow a pair down by chance: each direction's better
        rate counts. Not where several pairs share an uplink.
        """
        inside = [pair for pair in rates if self.racks[pair[0]] == self.racks[pair[1]]]
        self.best = max([self.best, *(slower(rates[pair]) for pair in inside)])
        slow = [pair for pair in inside if 0 < slower(rates[pair]) < (1 - self.tolerance) * self.best]
        for together in self._in_turns(slow):
            for pair, again in self._at_once(together).items():
                before = rates[pair]
                if before is not None and again is not None:
                    rates[pair] = max(before[0], again[0]), max(before[1], again[1])

    def _in_turns(self, pairs: list[Pair]) -> list[list[Pair]]:
        """Pairs that have no machine in common can be measured at the same time, and those that together
        load a rack's uplink must be.
        """
        teams: list[tuple[list[Pair], set[int]]] = []  # with the racks whose uplinks they load
        for pair in pairs:
            team, racks = [pair], {self.racks[host] for host in pair}
            if len(racks) > 1:
                for other in [other for other in teams if racks & other[1]]:
                    teams.remove(other)
                    team, racks = other[0] + team, racks | other[1]
            teams.append((team, racks if len(racks) > 1 else set()))
        rounds: list[tuple[list[Pair], set[int]]] = []
        for team, _ in teams:
            machines = {self.world.machines[host] for pair in team for host in pair}
            for members, busy in rounds:
                if not machines & busy:
                    members += team
                    busy |= machines
                    break
            else:
                rounds.append((list(team), machines))
        return [members for members, _ in rounds]

    def _at_once(self, pairs: list[Pair]) -> dict[Pair, Rates]:
        rates: dict[Pair, Rates] = {pair: None for pair in pairs}
        local_order: tuple[Pair, Order] | None = None
        requested: dict[int, Pair] = {}
        for pair in pairs:
            if any(self.silences[host] >= _MOST_SILENCES for host in pair):
                continue
            self.number += 1
            tag = FIRST_FREE_TAG + self.number % _TRANSFERS * TAGS
            for host, partner, first in ((pair[0], pair[1], True), (pair[1], pair[0], False)):
                order = (self.number, partner, first, tag)
                if host == 0:
                    local_order = pair, order
                else:
                    self.owed[host].add(self.number)
                    self.world.post(order, host, _ORDER)
                    requested[host] = pair
        end = time.monotonic() + self.limit + _SPARE_SECONDS
        answers: dict[int, Any] = {}
        if local_order is not None:
            answers[0] = carry_out(local_order[1], self.seconds, self.limit)
        for host in requested:
            answers[host] = self._answer(host, end)
        for pair in pairs:
            source, other = answers.get(pair[0]), answers.get(pair[1])
            if source is not None and other is not None:
                rates[pair] = (source[0], source[1])
                self.latency[pair] = source[2]
                for host in pair:
                    self.silences[host] = 0
            elif pair[0] in answers or pair[1] in answers:
                self.unfinished = True
                for host in pair:
                    self.silences[host] += 1
        return rates

    def _answer(self, host: int, end: float) -> Any:
        """A host's answer about the last transfer; late answers about earlier ones are ignored."""
        while self.owed[host]:
            got = self.world.receive(host, _DONE, end)
            if got is None:
                return None
            self.owed[host].discard(got[0])
            if not self.owed[host]:
                return got[1]
        return None

    def dismiss(self, ports: Ports) -> dict[str, Any]:
        """By host, what its ports have carried; ports: this one's."""
        for host in range(1, self.world.hosts):
            self.world.post(None, host, _ORDER)
        end = time.monotonic() + self.limit
        traffic: dict[int, Any] = {0: ports.traffic()}
        for host in range(1, self.world.hosts):
            traffic[host] = None if self.silences[host] else self.world.receive(host, _TRAFFIC, end)
        return {str(host): report for host, report in traffic.items() if report is not None}


class Ports:
    """This host's network ports of hardware, and what passes them from now on."""

    def __init__(self, root: Path = Path("/sys")) -> None:
        self.root = root
        self._before = {port["name"]: port["bytes"] for port in fabric.ports(root)}

    def traffic(self) -> dict[str, Any]:
        """moved: bytes that this rank sent and received. ports: with the bytes that passed them meanwhile."""
        ports = [
            {
                **{name: port[name] for name in ("name", "kind", "state", "rate")},
                "bytes": port["bytes"] - self._before.get(port["name"], port["bytes"]),
            }
            for port in fabric.ports(self.root)
        ]
        return {"moved": Transfer.moved, "ports": ports}


Order = tuple[int, int, bool, int]
"""Number of the transfer, the partner, does this rank send first, first tag."""


def carry_out(order: Order, seconds: float, limit: float) -> tuple[float, float, float] | None:
    _, partner, first, tag = order
    try:
        return Transfer(partner, first, tag, seconds, limit).both_ways()
    except NoAnswer:
        return None


def follow(world: World, ports: Ports, seconds: float, limit: float, idle: float) -> None:
    """What the other ranks do: carry out orders until they are dismissed."""
    while True:
        end = time.monotonic() + idle
        while (message := world.comm.improbe(0, _ORDER)) is None:
            if time.monotonic() > end:
                world.fail(f"rank 0 has given no order within {idle:.0f} s")
            time.sleep(0.0005)
        order = message.recv()
        if order is None:
            world.deliver(ports.traffic(), 0, _TRAFFIC, "what its ports have carried")
            return
        world.post((order[0], carry_out(order, seconds, limit)), 0, _DONE)


def result_of(outcome: Outcome, latency: dict[Pair, float]) -> dict[str, Any]:
    """latency: of each host, with its best partner."""
    best: dict[int, float] = {}
    for pair, seconds in latency.items():
        for host in pair:
            best[host] = min(best.get(host, seconds), seconds)
    return {
        "links": {str(host): rate for host, rate in sorted(outcome.links.items())},
        "uplink": outcome.uplink,
        "rounds": outcome.rounds,
        "best": {str(host): rate for host, rate in sorted(outcome.best.items())},
        "latency": {str(host): seconds for host, seconds in sorted(best.items())},
        "contended": [list(pair) for pair in outcome.contended],
        "across": [[*racks, rate] for racks, rate in outcome.across.items()],
        "rates": [[*pair, *(rates or (None, None))] for pair, rates in outcome.rates.items()],
        "unjudged": [[fault.value, *members] for fault, members in outcome.unjudged],
        "verdicts": [
            {
                "fault": verdict.fault.value,
                "members": list(verdict.members),
                "rate": verdict.rate,
                "expected": verdict.expected,
                "sending": verdict.sending,
            }
            for verdict in outcome.verdicts
        ],
    }


def _numbers(world: World, text: str) -> list[int] | None:
    numbers = [int(number) for number in text.split(",")] if text else None
    if numbers is not None and len(numbers) != world.hosts:
        world.fail(f"{text}: {len(numbers)} numbers for {world.hosts} hosts")
    return numbers


def main(arguments: list[str] | None = None) -> int:
    parser = options(__doc__)
    parser.add_argument("--racks", default="", help="number of each host's rack, as in 0,0,1,1")
    parser.add_argument("--kinds", default="", help="number of each host's kind, as in 0,0,1,1")
    parser.add_argument("--answer", type=float, default=5.0, help="seconds that a pair of hosts is given")
    parser.add_argument("--idle", type=float, default=600.0, help="seconds that a rank waits for an order")
    settings = parser.parse_args(arguments)
    world, ports = World(1, settings.limit), Ports()
    limit = settings.answer + 4 * settings.seconds
    racks, kinds = _numbers(world, settings.racks), _numbers(world, settings.kinds)
    if world.rank:
        follow(world, ports, settings.seconds, limit, settings.idle)
        return _end()
    director = Director(world, racks, settings.tolerance, settings.seconds, limit)
    asking = search(world.hosts, racks, settings.tolerance, kinds=kinds)
    try:
        pairs = next(asking)
        while True:
            pairs = asking.send(director.measure(pairs))
    except StopIteration as stop:
        outcome: Outcome = stop.value
    result = {**result_of(outcome, director.latency), "machines": world.machines}
    world.print_result({**result, "unfinished": director.unfinished, "traffic": director.dismiss(ports)})
    if director.unfinished:
        # messages that nobody will take are under way: MPI would wait for them
        time.sleep(1)
        world.comm.Abort(1)
    return _end()


def _end() -> int:
    """A rank with messages under way must not finish MPI: it waits to be ended with the job."""
    if Transfer.abandoned:
        time.sleep(30)
        os._exit(1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
