"""Simulated clusters of leaf and spine switches, of which the search is told nothing but the rates."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from ddl_validate.suite.search import Pair, Rates

LINK = 12.5e9
HOSTS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024)


@dataclass
class LeafSpine:
    """A cluster.

    leaf: the switch of each host. links: of each leaf to the spines, of a host's speed. adaptive: flows share
    all of them; else each flow has one, by a hash of its ends. noise: standard deviation of a measurement's
    shortfall, as a share. left: of slow hosts, what is left when they send and when they receive.
    """

    leaf: list[int]
    links: dict[int, int]
    adaptive: bool
    noise: float
    random: random.Random
    left: dict[int, tuple[float, float]] = field(default_factory=dict)
    _hashes: dict[tuple[str, int, int], float] = field(default_factory=dict)

    def measure(self, pairs: list[Pair]) -> list[Rates]:
        there, back = self._flows(pairs), self._flows([(b, a) for a, b in pairs])
        return list(zip(there, back, strict=True))

    def _flows(self, flows: list[Pair]) -> list[float]:
        used = [self._links_of(a, b) for a, b in flows]
        load = Counter(link for links in used for link in links)
        return [
            LINK
            * min(self.left.get(a, (1, 1))[0], self.left.get(b, (1, 1))[1], *self._shares(links, load), 1.0)
            * (1 - abs(self.random.gauss(0, self.noise)))
            for (a, b), links in zip(flows, used, strict=True)
        ]

    def _links_of(self, a: int, b: int) -> list[tuple[str, int, int]]:
        if self.leaf[a] == self.leaf[b]:
            return []
        return [self._link("up", self.leaf[a], a, b), self._link("down", self.leaf[b], a, b)]

    def _link(self, way: str, leaf: int, a: int, b: int) -> tuple[str, int, int]:
        if self.adaptive:
            return way, leaf, 0
        share = self._hashes.setdefault((way, a, b), self.random.random())
        return way, leaf, int(share * self.links[leaf])

    def _shares(self, links: list[tuple[str, int, int]], load: Counter[tuple[str, int, int]]) -> list[float]:
        return [(self.links[link[1]] if self.adaptive else 1) / load[link] for link in links]


def cluster(seed: int, slow: int = 0) -> tuple[LeafSpine, float]:
    """A cluster, and a tolerance to search it with.

    slow: hosts with a slow link, at most; fewer than a third of all, as nobody can tell which of two is slow.
    """
    choose = random.Random(seed)
    hosts = choose.choice(HOSTS)
    size, over = choose.choice([2, 4, 8, 16, 18, 32]), choose.choice([1, 1, 2, 3, 4, 8])
    leaf = [host // size for host in range(hosts)]
    if choose.random() < 0.5:
        choose.shuffle(leaf)
    links = {number: max(1, round(count / over)) for number, count in Counter(leaf).items()}
    noise = choose.choice([0.01, 0.03, 0.06, 0.1, 0.15])
    made = LeafSpine(leaf, links, choose.random() < 0.5, noise, choose)
    for host in choose.sample(range(hosts), min(slow, (hosts - 1) // 3)):
        left = choose.choice([0.1, 0.3, 0.5])
        made.left[host] = choose.choice([(left, 1.0), (1.0, left), (left, left)])
    return made, choose.choice([0.15, 0.2, 0.3])
