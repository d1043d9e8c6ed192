"""Simulated clusters of leaf and spine switches, also as dragonflies. What is tested sees their rates."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass, field

from ddl_validate.suite.search import Pair, Rates

LINK = 12.5e9
HOSTS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024)
_GROUP_SIZES = (2, 4, 8)  # leaves of a dragonfly's group
Link = tuple[str, int, int]


@dataclass
class LeafSpine:
    """A cluster.

    leaf: the switch of each host. links: of each leaf to the spines, of a host's speed. adaptive: flows share
    all of them; else each flow has one, by a hash of its ends. noise: standard deviation of a measurement's
    shortfall, as a share. group: of each leaf, in a dragonfly: links lead to the other leaves of the group,
    and `global_links` to each other group. speed: of hosts of another generation, as a share. left: of slow
    hosts, what is left when they send and when they receive. slow_uplinks: the same of leaves.
    """

    leaf: list[int]
    links: dict[int, int]
    adaptive: bool
    noise: float
    random: random.Random
    group: dict[int, int] = field(default_factory=dict)
    global_links: int = 0
    speed: dict[int, float] = field(default_factory=dict)
    left: dict[int, tuple[float, float]] = field(default_factory=dict)
    slow_uplinks: dict[int, tuple[float, float]] = field(default_factory=dict)
    _hashes: dict[Link, float] = field(default_factory=dict)

    @property
    def kinds(self) -> list[int]:
        """Of each host, as validation knows it: by its processor, or the speed of its port."""
        generations = sorted({self.speed.get(host, 1.0) for host in range(len(self.leaf))})
        return [generations.index(self.speed.get(host, 1.0)) for host in range(len(self.leaf))]

    @property
    def faults(self) -> set[tuple[str, tuple[int, ...]]]:
        """What was planted: kind of fault, and its members."""
        slow_leaves = {("rack", (leaf,)) for leaf in self.slow_uplinks}
        return {("host", (host,)) for host in self.left} | slow_leaves

    def measure(self, pairs: list[Pair]) -> list[Rates]:
        there, back = self._flows(pairs), self._flows([(b, a) for a, b in pairs])
        return list(zip(there, back, strict=True))

    def _flows(self, flows: list[Pair]) -> list[float]:
        used = [self._links_of(a, b) for a, b in flows]
        load = Counter(link for links in used for link in links)
        return [
            LINK
            * min(self._host(a, 0), self._host(b, 1), *(self._share(link, load[link]) for link in links), 1.0)
            * (1 - abs(self.random.gauss(0, self.noise)))
            for (a, b), links in zip(flows, used, strict=True)
        ]

    def _host(self, host: int, way: int) -> float:
        return self.speed.get(host, 1.0) * self.left.get(host, (1.0, 1.0))[way]

    def _links_of(self, a: int, b: int) -> list[Link]:
        near, far = self.leaf[a], self.leaf[b]
        if near == far:
            return []
        links = [
            self._link("up", near, self.links[near], a, b),
            self._link("down", far, self.links[far], a, b),
        ]
        if self.group.get(near) != self.group.get(far):
            ends = self.group[near] * len(self.leaf) + self.group[far]
            links.append(self._link("global", ends, self.global_links, a, b))
        return links

    def _link(self, way: str, place: int, count: int, a: int, b: int) -> Link:
        if self.adaptive:
            return way, place, 0
        share = self._hashes.setdefault((way, a, b), self.random.random())
        return way, place, int(share * count)

    def _share(self, link: Link, load: int) -> float:
        way, place, _ = link
        together = self.global_links if way == "global" else self.links[place]
        left = self.slow_uplinks.get(place, (1.0, 1.0))[way == "down"] if way != "global" else 1.0
        return left * (together if self.adaptive else 1) / load


def cluster(seed: int, slow: int = 0, uplinks: bool = True) -> tuple[LeafSpine, float]:
    """A cluster, and a tolerance to search it with.

    slow: hosts with a slow link, at most: fewer than a third of a kind, as nobody can tell which of two is
    slow. uplinks: one of them may be a leaf with slow uplinks.
    """
    choose = random.Random(seed)
    hosts = choose.choice(HOSTS)
    size, over = choose.choice([2, 4, 8, 16, 18, 32]), choose.choice([1, 1, 2, 3, 4, 8])
    leaf = [host // size for host in range(hosts)]
    if choose.random() < 0.5:
        choose.shuffle(leaf)
    sizes = Counter(leaf)
    # a leaf has its uplinks, whether all of its ports have hosts or not
    links = {number: max(1, math.ceil(min(size, hosts) / over)) for number in sizes}
    noise = choose.choice([0.01, 0.03, 0.06, 0.1, 0.15])
    made = LeafSpine(leaf, links, choose.random() < 0.5, noise, choose)
    if choose.random() < 0.25 and len(sizes) > 2:
        leaves_of_group = choose.choice(_GROUP_SIZES)
        made.group = {number: number // leaves_of_group for number in sizes}
        made.global_links = links[0] * choose.choice([1, 2])
    if choose.random() < 0.25:
        slower = choose.choice([0.25, 0.5])
        made.speed = dict.fromkeys(choose.sample(range(hosts), choose.randint(0, hosts // 2)), slower)
    _plant(made, slow, uplinks, choose)
    return made, choose.choice([0.15, 0.2, 0.3])


def _plant(made: LeafSpine, slow: int, uplinks: bool, choose: random.Random) -> None:
    """Slow hosts, of which each kind has fewer than a third; and one slow uplink, if it can show."""

    def some() -> tuple[float, float]:
        left = choose.choice([0.1, 0.3, 0.5])
        return choose.choice([(left, 1.0), (1.0, left), (left, left)])

    sizes = Counter(made.leaf)
    full = [number for number, size in sizes.items() if size == max(sizes.values()) > 1]
    # only a leaf that others of its size load, and no link between groups before it, shows its uplink
    if slow and uplinks and len(full) > 3 and not made.group and not made.speed and choose.random() < 0.5:
        made.slow_uplinks[choose.choice(full)] = some()
        slow -= 1
    kinds = made.kinds
    remaining = {kind: (count - 1) // 3 for kind, count in Counter(kinds).items()}
    for host in choose.sample(range(len(kinds)), len(kinds)):
        if len(made.left) >= slow:
            break
        if remaining[kinds[host]] > 0 and made.leaf[host] not in made.slow_uplinks:
            remaining[kinds[host]] -= 1
            made.left[host] = some()
