"""Which hosts make the sums of a cluster wrong: groups of hosts to sum among, and what their results say.

Pure: `bisect` yields rounds of disjoint groups, is sent which of them were wrong, and returns who is at
fault. The run by probe/sums.py sums within the groups of a round at the same time.

1. Wrong groups are halved down to two or three hosts; hosts of groups that are right are good.
2. Where none is good, as each half has a culprit, pairs are tried until one is right.
3. Each host that is left is tried with a good one, since some faults show only in what a host sends. A
   culprit is wrong with two good hosts: with one of them alone, it may be the path between the two.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from .search import matchings

Group = tuple[int, ...]
Asking = Generator[list[Group], list[bool], None]


@dataclass
class Suspects:
    """culprits: hosts whose sums were wrong with others that are good. undecided: groups whose sums were
    wrong, but none of whose parts' were: a fault that comes and goes, or one between hosts.
    """

    culprits: list[int] = field(default_factory=list)
    undecided: list[Group] = field(default_factory=list)
    rounds: int = 0


def bisect(hosts: Sequence[int]) -> Generator[list[Group], list[bool], Suspects]:
    """The sum among all of `hosts` was wrong."""
    bisection = _Bisection(tuple(hosts))
    yield from bisection.run()
    bisection.suspects.culprits.sort()
    return bisection.suspects


class _Bisection:
    def __init__(self, hosts: Group) -> None:
        self.hosts = hosts
        self.suspects = Suspects()
        self.good: list[int] = []
        self.small: list[Group] = []  # wrong groups of two or three hosts
        self.wrong_pairs: set[frozenset[int]] = set()

    def run(self) -> Asking:
        yield from self._halve()
        if not self.good and len(self.hosts) > 2:
            yield from self._find_good_pairs()
        yield from self._try_each()

    def _ask(self, groups: list[Group]) -> Generator[list[Group], list[bool], list[bool]]:
        if not groups:
            return []
        verdicts = yield groups
        self.suspects.rounds += 1
        for group, bad in zip(groups, verdicts, strict=True):
            if bad and len(group) == 2:
                self.wrong_pairs.add(frozenset(group))
        return verdicts

    def _halve(self) -> Asking:
        wrong = [self.hosts]
        while wrong:
            self.small += [group for group in wrong if len(group) < 4]
            large = [group for group in wrong if len(group) >= 4]
            halves = [(group[: len(group) // 2], group[len(group) // 2 :]) for group in large]
            verdicts = yield from self._ask([half for both in halves for half in both])
            wrong = []
            for number, group in enumerate(large):
                bad = verdicts[2 * number : 2 * number + 2]
                for half, is_bad in zip(halves[number], bad, strict=True):
                    if is_bad:
                        wrong.append(half)
                    else:
                        self.good += half
                if not any(bad):
                    self.suspects.undecided.append(group)

    def _find_good_pairs(self) -> Asking:
        for round_ in matchings(len(self.hosts)):
            pairs = [(self.hosts[a], self.hosts[b]) for a, b in round_]
            pairs = [
                pair for pair in pairs if frozenset(pair) not in self.wrong_pairs and pair not in self.small
            ]
            verdicts = yield from self._ask(list(pairs))
            self.good += [host for pair, bad in zip(pairs, verdicts, strict=True) if not bad for host in pair]
            if self.good:
                return

    def _try_each(self) -> Asking:
        remaining = [host for group in self.small for host in group if host not in self.good]
        met: dict[int, list[int]] = {host: [] for host in remaining}  # good hosts with which it was wrong
        helpers = list(self.good)  # those who turn out to be good meanwhile are not needed
        while remaining:
            free = list(helpers)
            groups: list[Group] = []
            for host in remaining:
                helper = next((other for other in free if other not in met[host]), None)
                if helper is not None:
                    free.remove(helper)
                    groups.append((host, helper))
                elif not set(helpers) - set(met[host]) and not met[host]:
                    groups.append((host,))  # there is no good host: alone
            verdicts = yield from self._ask(groups)
            for group, bad in zip(groups, verdicts, strict=True):
                host, company = group[0], group[1:]
                met[host] += company
                if bad and (len(met[host]) == min(2, len(helpers)) or not company):
                    self.suspects.culprits.append(host)
                elif bad:
                    continue
                elif len(met[host]) == 2:
                    self.suspects.undecided.append((host, met[host][0]))
                remaining.remove(host)
        named = {host for group in self.suspects.undecided for host in group} | set(self.suspects.culprits)
        self.suspects.undecided += [group for group in self.small if not named & set(group)]
