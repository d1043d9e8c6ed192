"""Which hosts make the sums of a cluster wrong: groups of hosts to sum among, and what their results say.

Pure: `bisect` yields rounds of disjoint groups, is sent which of them were wrong, and returns who is at
fault. The run by probe/sums.py sums within the groups of a round at the same time.

Those known to hold a culprit are halved until one host is left. A host must be tried with others, since some
faults show only in what it sends: one that is left over is tried with a host that is known to be good. Where
none is known, because there is a culprit in each half, pairs are tried until one is right.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from .search import matchings

Group = tuple[int, ...]


@dataclass
class Suspects:
    """culprits: hosts with which every sum was wrong. undecided: groups whose sums were wrong, but none of
    whose parts' were: a fault that comes and goes, or one between hosts.
    """

    culprits: list[int] = field(default_factory=list)
    undecided: list[Group] = field(default_factory=list)
    rounds: int = 0


@dataclass(frozen=True)
class _Wrong:
    """A group whose sum was wrong, with those of it who are not cleared."""

    members: Group
    suspects: Group


def bisect(hosts: Sequence[int]) -> Generator[list[Group], list[bool], Suspects]:
    """The sum among all of `hosts` was wrong."""
    found = Suspects()
    cleared: list[int] = []
    open_ = [_Wrong(tuple(hosts), tuple(hosts))]
    while open_:
        if not cleared and len(hosts) > 2 and all(len(wrong.suspects) <= 2 for wrong in open_):
            cleared += yield from _good_pairs(hosts, {frozenset(wrong.members) for wrong in open_}, found)
            open_ = [
                _Wrong(wrong.members, tuple(host for host in wrong.suspects if host not in cleared))
                for wrong in open_
            ]
            found.undecided += [wrong.members for wrong in open_ if not wrong.suspects]
            open_ = [wrong for wrong in open_ if wrong.suspects]
            if not open_:
                break
        tried = []
        helpers = list(cleared)
        for wrong in open_:
            middle = (len(wrong.suspects) + 1) // 2
            parts = [wrong.suspects[:middle], wrong.suspects[middle:]]
            tried += [(wrong, part, _with_company(part, helpers, wrong.members)) for part in parts if part]
        verdicts = yield [group for _, _, group in tried]
        found.rounds += 1
        following: list[_Wrong] = []
        for wrong in open_:
            own = [
                (part, group, bad)
                for (of, part, group), bad in zip(tried, verdicts, strict=True)
                if of is wrong
            ]
            right = [part for part, group, bad in own if not bad and len(group) > 1]
            cleared += [host for part in right for host in part]
            unclear = [host for part, group, bad in own if not bad and len(group) == 1 for host in part]
            for part, group, bad in own:
                if bad and len(part) == 1:
                    found.culprits.append(part[0])
                elif bad:
                    following.append(_Wrong(group, part))
            if any(bad for _, _, bad in own):
                continue
            # alone they were right: next with one that is good, if there is one by now
            if unclear and cleared:
                following.append(_Wrong(wrong.members, tuple(unclear)))
            else:
                found.undecided.append(wrong.members)
        open_ = following
    found.culprits.sort()
    return found


def _good_pairs(
    hosts: Sequence[int], known: set[frozenset[int]], found: Suspects
) -> Generator[list[Group], list[bool], list[int]]:
    """Hosts of pairs that are right, of the first round that has some. known: to be wrong."""
    for round_ in matchings(len(hosts)):
        pairs: list[Group] = [(hosts[a], hosts[b]) for a, b in round_]
        pairs = [pair for pair in pairs if frozenset(pair) not in known]
        if not pairs:
            continue
        verdicts = yield pairs
        found.rounds += 1
        right = [host for pair, bad in zip(pairs, verdicts, strict=True) if not bad for host in pair]
        if right:
            return right
    return []


def _with_company(part: Group, helpers: list[int], members: Group) -> Group:
    """A host that would be alone gets a good one, each of which can be in one group of a round; none of
    `members`, with whom it is known to be wrong.
    """
    helper = next((host for host in helpers if host not in members), None)
    if len(part) > 1 or helper is None:
        return part
    helpers.remove(helper)
    return (*part, helper)
