"""Which link, path or uplink of a cluster is slow: what to measure at the same time, and what it says.

Pure: `search` yields rounds of disjoint pairs, is sent what they measured, and returns what is at fault. So
it is tested on simulated clusters, and runs on real ones by probe/pairs.py.

1. Hosts of a rack are paired at distance 1, 2, 4, …; in small racks everybody with everybody.
2. A host that was slow with all its partners is measured again with a partner that was not, alone on its
   links; a slow pair of which both hosts are good with others is measured again alone.
3. Racks are paired in the same way, all their good hosts at once; what a rack pair carries together counts.
   They are paired in the order of their sizes, the largest ones everybody with everybody: only with its like
   is a large rack's uplink loaded.
4. A rack that was slow with all others is measured again with a good one, alone; a slow pair of good racks,
   or a slow pair of hosts in good racks, is measured again alone.

5. What would be named is measured again, one at a time, until it is good once: noise only slows down. Of many
   the worst ones are; the others are not judged. A rack is measured in turns with others, and means count.
6. Hosts of another kind have a search of their own.

Where the racks are not known, hosts that share an uplink cannot be kept apart: some pairs are measured alone
to see what a link gives, and hosts that were slow beside all others beside fewer ones.

What is fine when it is alone was contention, and nobody's fault. What is expected is what most others reach:
with only two hosts, or two racks, nobody can say which one is slow, unless the expected rate is given. An
uplink shows as far as racks that are good, and paired with one another, load theirs: that of the largest rack
alone, loaded by small ones, is good for all that anybody can tell.
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections import defaultdict
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

Pair = tuple[int, int]
Rates = tuple[float, float] | None
"""Bytes a second from the first host of a pair to the second, and back; None: it did not answer."""
Step = Generator[list[Pair], list[Rates], None]

_ALL_PAIRS = 8  # up to so many hosts or racks are paired everybody with everybody
_AGAIN_MOST = 4  # rounds for each kind of measuring again
_ALONE = 3  # pairs that are measured alone where the racks are not known
_FEWER_MOST = 64  # rounds with fewer hosts at once there
_TRIALS = 3  # for each host there, as its partner may be slow, or the uplink busy
_JUDGED_MOST = 16  # faults that are measured again before they are named
_CONFIRMATIONS = 10  # times; of four that are far too slow, no more are needed
_CLEARLY = 0.6  # of what is allowed
_CLEAR_MOST = 4
_UPLINKS_JUDGED_MOST = 4
_UPLINK_CONFIRMATIONS_LEAST, _UPLINK_CONFIRMATIONS = 4, 24
_CERTAIN = 3.0  # standard errors


def most_rounds(hosts: int) -> int:
    """No search among hosts of one kind takes more rounds: 2 log2(hosts) + 449; without faults and contention
    2 log2(hosts) + 30.
    """
    again = _JUDGED_MOST * _CONFIRMATIONS + _UPLINKS_JUDGED_MOST * 2 * _UPLINK_CONFIRMATIONS
    again += _ALONE + _FEWER_MOST
    return 2 * math.ceil(math.log2(max(hosts, 2))) + 30 + again


class Fault(StrEnum):
    HOST = "host"  # a host's own link: its NIC, cable or switch port
    PATH = "path"  # between two hosts that are both good with others
    RACK = "rack"  # a rack's uplink
    RACKS = "racks"  # between two racks whose uplinks are both good with others
    SILENT = "silent"  # a host that did not answer


@dataclass(frozen=True)
class Verdict:
    """members: hosts, or racks for RACK and RACKS. rate, expected: bytes/s of the slower direction; for
    racks, of all pairs together. sending: the first member is slow to send (True), to receive (False), or
    both ways (None)."""

    fault: Fault
    members: tuple[int, ...]
    rate: float = 0.0
    expected: float = 0.0
    sending: bool | None = None


@dataclass
class Outcome:
    """link, uplink: expected of a pair inside a rack, and of a pair of racks with most pairs of hosts, of the
    commonest kind; None where nobody can say. links: expected of each host's link, by its kind. best: of each
    host, the best rate inside its rack (else across). across: what pairs of racks carried. contended: pairs
    that were slow beside others and fine alone. unjudged: hosts, pairs and racks that were slow beside
    others, and were not measured alone.
    """

    verdicts: list[Verdict] = field(default_factory=list)
    rates: dict[Pair, Rates] = field(default_factory=dict)
    best: dict[int, float] = field(default_factory=dict)
    across: dict[Pair, float] = field(default_factory=dict)
    contended: list[Pair] = field(default_factory=list)
    unjudged: list[tuple[Fault, tuple[int, ...]]] = field(default_factory=list)
    link: float | None = None
    uplink: float | None = None
    links: dict[int, float] = field(default_factory=dict)
    rounds: int = 0

    def add(self, other: Outcome, hosts: Sequence[int]) -> None:
        """Take in the outcome of a kind of hosts. hosts: their numbers among all."""

        def among_all(fault: Fault, members: tuple[int, ...]) -> tuple[int, ...]:
            of_racks = fault in (Fault.RACK, Fault.RACKS)
            return members if of_racks else tuple(hosts[member] for member in members)

        self.verdicts += [
            replace(verdict, members=among_all(verdict.fault, verdict.members)) for verdict in other.verdicts
        ]
        self.unjudged += [(fault, among_all(fault, members)) for fault, members in other.unjudged]
        self.rates |= {(hosts[a], hosts[b]): rates for (a, b), rates in other.rates.items()}
        self.best |= {hosts[host]: rate for host, rate in other.best.items()}
        self.contended += [(hosts[a], hosts[b]) for a, b in other.contended]
        for racks, carried in other.across.items():
            self.across[racks] = max(carried, self.across.get(racks, 0.0))
        if other.link is not None:
            self.links |= dict.fromkeys(hosts, other.link)
        # of the first kind, which has the most hosts
        self.link = other.link if self.link is None else self.link
        self.uplink = other.uplink if self.uplink is None else self.uplink
        self.rounds += other.rounds


def slower(rates: Rates) -> float:
    return min(rates) if rates else 0.0


def matchings(count: int) -> list[list[Pair]]:
    """Rounds of disjoint pairs of 0 … count-1: everybody with everybody where there are few, else at the
    distances 1, 2, 4, …; everybody is in one of them."""
    if count < 2:
        return []
    if count > _ALL_PAIRS:
        return [
            [(i, i + distance) for i in range(count - distance) if not i & distance]
            for distance in (1 << bit for bit in range((count - 1).bit_length()))
        ]
    # the circle method; an odd one out pairs with nobody
    ring: list[int | None] = [*range(count), *([None] if count % 2 else [])]
    rounds = []
    for _ in range(len(ring) - 1):
        facing = zip(ring[: len(ring) // 2], reversed(ring[len(ring) // 2 :]), strict=True)
        rounds.append([(min(a, b), max(a, b)) for a, b in facing if a is not None and b is not None])
        ring.insert(1, ring.pop())
    return rounds


def search(
    hosts: int,
    racks: Sequence[int] | None = None,
    tolerance: float = 0.2,
    link: float | None = None,
    uplink: float | None = None,
    kinds: Sequence[int] | None = None,
) -> Generator[list[Pair], list[Rates], Outcome]:
    """racks: number of each host's rack; None: nobody knows. tolerance: the share of the expected rate that
    may be missing. link, uplink: expected rates of a pair in a rack and of a rack's uplink, where they are
    known; else those of the others are. kinds: of each host; None: all are of one. Hosts of one kind are
    measured with one another, kind after kind, and a kind of one host with any other host, unjudged.
    """
    members: dict[int, list[int]] = defaultdict(list)
    for host in range(hosts):
        members[kinds[host] if kinds else 0].append(host)
    outcome = Outcome()
    for group in sorted(members.values(), key=len, reverse=True):
        if len(group) == 1 < hosts:
            yield from _alone_of_its_kind(group[0], hosts, outcome)
            continue
        state = _Search(
            len(group),
            [racks[host] for host in group] if racks else [0] * len(group),
            1 - tolerance,
            link,
            uplink,
            hidden=racks is None,
        )
        steps = state.run()
        measured: list[Rates] | None = None
        while True:
            try:
                pairs = next(steps) if measured is None else steps.send(measured)
            except StopIteration:
                break
            measured = yield [(group[a], group[b]) for a, b in pairs]
        outcome.add(state.outcome, group)
    return outcome


def _alone_of_its_kind(host: int, hosts: int, outcome: Outcome) -> Step:
    """Does it answer? With another host that does."""
    others = sorted(range(hosts), key=lambda other: (-outcome.best.get(other, 0.0), other))
    partners = [other for other in others if other != host]
    answered: Rates = None
    for partner in partners[:_ALONE]:
        (answered,) = yield [(host, partner)]
        outcome.rounds += 1
        outcome.rates[host, partner] = answered
        if answered is not None:
            outcome.best[host] = slower(answered)
            return
    outcome.verdicts.append(Verdict(Fault.SILENT, (host,)))


class _Search:
    def __init__(
        self,
        hosts: int,
        racks: Sequence[int],
        least: float,
        link: float | None,
        uplink: float | None,
        hidden: bool = False,
    ) -> None:
        self.hidden = hidden
        self.count, self.rack, self.least = hosts, list(racks), least
        self.given_link, self.given_uplink = link, uplink
        self.members: dict[int, list[int]] = defaultdict(list)
        for host, rack in enumerate(self.rack):
            self.members[rack].append(host)
        self.outcome = Outcome()
        self.answered: set[int] = set()
        self.good: set[int] = set()  # hosts whose own link is good
        self.bad: dict[int, Verdict] = {}
        self.inside: dict[Pair, Rates] = {}
        self.crossed: dict[Pair, Rates] = {}  # beside others
        self.shown_by: dict[int, Pair] = {}  # slow racks: the pair in which they were
        self.expectations: dict[int, float | None] = {}  # by number of pairs of hosts, of what was measured
        self.teams: dict[Pair, int] = {}  # pairs of hosts of a pair of racks, in its last measurement

    def run(self) -> Step:
        yield from self._inside()
        if self.hidden:
            yield from self._beside_fewer()
        yield from self._hosts_again(crossing=False)
        yield from self._across()
        yield from self._hosts_again(crossing=True)
        yield from self._racks_again()
        yield from self._pairs_again()
        self._conclude()
        yield from self._confirm()

    # ---- measuring

    def _measure(self, pairs: list[Pair]) -> Generator[list[Pair], list[Rates], dict[Pair, Rates]]:
        if not pairs:
            return {}
        measured = dict(zip(pairs, (yield pairs), strict=True))
        self.outcome.rounds += 1
        for pair, rates in measured.items():
            self.outcome.rates[pair] = rates
            if rates is not None:
                self.answered.update(pair)
        return measured

    def _inside(self) -> Step:
        rounds = [(hosts, matchings(len(hosts))) for hosts in self.members.values()]
        for number in range(max(len(steps) for _, steps in rounds)):
            pairs = [
                (hosts[a], hosts[b])
                for hosts, steps in rounds
                if number < len(steps)
                for a, b in steps[number]
            ]
            self.inside.update((yield from self._measure(pairs)))
        best: dict[int, float] = defaultdict(float)
        for pair, rates in self.inside.items():
            for host in pair:
                best[host] = max(best[host], slower(rates))
        self.outcome.best.update(best)
        link = self.given_link
        # of two hosts, both have the same rate: nobody is there to compare them with
        if link is None and len(best) > 2:
            link = statistics.median_high(best.values())
        self.outcome.link = link or None
        if link:
            self.good = {host for host, rate in best.items() if rate >= self.least * link}

    def _beside_fewer(self) -> Step:
        """The racks are not known: what a link gives alone, and hosts that were slow beside all others."""
        if self.given_link is None and self.outcome.link:
            alone = []
            ranked = sorted(self.inside, key=lambda pair: -slower(self.inside[pair]))
            for pair in ranked[:_ALONE]:
                alone += [slower(rates) for rates in (yield from self._measure([pair])).values()]
            self.outcome.link = max(self.outcome.link, statistics.median_low(alone))
        link, best = self.outcome.link, self.outcome.best
        if not link:
            return
        self.good = {host for host, rate in best.items() if rate >= self.least * link}
        unclear = {host for host in best if host not in self.good and host in self.answered}
        if not unclear:
            return
        # An uplink that gives a share of a link beside all others is free where half of that share use it.
        share = statistics.median_low(best.values()) / link
        at_once = max(1, int(len(unclear) / 2 * share / 2))
        tried = dict.fromkeys(unclear, 0)
        order = random.Random(0)
        for _ in range(min(_FEWER_MOST, _TRIALS * math.ceil(len(unclear) / (2 * at_once)) + _AGAIN_MOST)):
            waiting = sorted(unclear, key=lambda host: (tried[host], order.random()))[: 2 * at_once]
            if not waiting:
                break
            if len(waiting) % 2:
                partners = [host for host in sorted(self.good) if host not in waiting]
                if partners:
                    waiting.append(order.choice(partners))
                elif len(waiting) > 1:
                    waiting.pop()
                else:
                    break
            order.shuffle(waiting)
            pairs = [(min(a, b), max(a, b)) for a, b in zip(waiting[::2], waiting[1::2], strict=True)]
            for pair, rates in (yield from self._measure(pairs)).items():
                for host in pair:
                    best[host] = max(best[host], slower(rates))
                    tried[host] = tried.get(host, 0) + 1
                    if best[host] >= self.least * link:
                        self.good.add(host)
                        unclear.discard(host)

    def _across(self) -> Step:
        order = sorted(self.members, key=lambda rack: -len(self.members[rack]))
        plan = [(order, matching) for matching in matchings(len(order))]
        if len(order) > _ALL_PAIRS:
            largest = order[:_ALL_PAIRS]
            plan += [(largest, matching) for matching in matchings(len(largest))]
        for among, round_ in plan:
            racks = [(min(pair), max(pair)) for pair in ((among[a], among[b]) for a, b in round_)]
            racks = [pair for pair in racks if pair not in self.outcome.across]
            yield from self._measure_racks(racks)
        if self.outcome.across:
            self._expect_across()
            for (a, b), rates in self.crossed.items():
                alone = self._alone()
                if alone and slower(rates) >= self.least * alone:
                    self.good.update((a, b))

    def _measure_racks(self, racks: list[Pair]) -> Step:
        """All these pairs of racks at once, each with as many pairs of hosts as it has."""
        teams = {pair: self._team(*pair) for pair in racks}
        measured = yield from self._measure([pair for team in teams.values() for pair in team])
        self.expectations.clear()
        for pair, team in teams.items():
            if team:
                self.outcome.across[pair] = min(_together(measured[member] for member in team))
                self.teams[pair] = len(team)
                self.crossed.update({member: measured[member] for member in team})

    def _team(self, a: int, b: int, turn: int = 0) -> list[Pair]:
        """Pairs of a host of rack `a` and one of `b`: at any time, all of them load an uplink in the same
        direction. turn: another number pairs other hosts."""

        ours, theirs = self._able(a), self._able(b)
        turned = [theirs[(number + turn) % len(theirs)] for number in range(len(theirs))]
        return list(zip(ours, turned, strict=False))

    def _able(self, rack: int) -> list[int]:
        hosts = [host for host in self.members[rack] if host not in self.bad]
        return [host for host in hosts if host in self.good] or hosts

    # ---- what is expected across racks

    def _expected(self, team: int) -> float | None:
        """Expected rate of a pair of racks with so many pairs of hosts.

        More pairs carry no less together, no more each: both give a lower bound.
        """
        if self.given_uplink is not None:
            return min(self.given_uplink, team * (self.outcome.link or math.inf))
        if team not in self.expectations:
            self.expectations[team] = self._expected_of_others(team)
        return self.expectations[team]

    def _expected_of_others(self, team: int) -> float | None:
        racks = {rack for pair in self.outcome.across for rack in pair}
        if len(racks) < 3:
            return None
        fewer: dict[int, float] = defaultdict(float)
        more: dict[int, float] = defaultdict(float)
        for pair, carried in self.outcome.across.items():
            size = self.teams[pair]
            for rack in pair:
                if size <= team:
                    fewer[rack] = max(fewer[rack], carried)
                if size >= team:
                    more[rack] = max(more[rack], carried / size)
        bounds = [0.0]
        if len(fewer) > 2:
            bounds.append(statistics.median_high(fewer.values()))
        if len(more) > 2:
            bounds.append(team * statistics.median_high(more.values()))
        return max(bounds) or None

    def _alone(self) -> float | None:
        """Expected of one pair of hosts across racks, alone."""
        uplink, link = self.outcome.uplink, self.outcome.link
        if uplink is None:
            # of two racks: what they carry is all that one pair can have
            return min(link, max(self.outcome.across.values(), default=0.0)) or None if link else None
        contended = self._expected(1)
        return max(contended or 0.0, min(link or 0.0, uplink)) or None

    def _expect_across(self) -> None:
        self.outcome.uplink = self._expected(max(self.teams.values()))

    def _across_slow(self, pair: Pair) -> bool:
        expected = self._expected(self.teams[pair])
        return expected is not None and self.outcome.across[pair] < self.least * expected

    # ---- measuring again

    def _hosts_again(self, crossing: bool) -> Step:
        """Hosts that were good with nobody, each with a good one: of their own rack, or of another one."""
        tried: set[Pair] = set()
        for _ in range(_AGAIN_MOST):
            expected = self._alone() if crossing else self.outcome.link
            if not expected:
                return
            pairs: list[Pair] = []
            busy: set[int] = set()
            for host in self._unclear(crossing):
                if host in busy or (crossing and self.rack[host] in {self.rack[partner] for partner in busy}):
                    continue
                partner = next(iter(self._partners(host, crossing, busy, tried)), None)
                if partner is not None:
                    pairs.append((host, partner))
                    busy.update((host, partner))
                    tried.add((host, partner))
            if not pairs:
                return
            for (host, _), rates in (yield from self._measure(pairs)).items():
                self.outcome.best[host] = max(self.outcome.best.get(host, 0.0), slower(rates))
                if slower(rates) >= self.least * expected:
                    self.good.add(host)
                    self.bad.pop(host, None)
                else:
                    self.bad[host] = self._verdict(Fault.HOST, (host,), rates, expected)

    def _unclear(self, crossing: bool) -> list[int]:
        seen = {host for pair in (*self.inside, *self.crossed) for host in pair}
        return [
            host
            for host in range(self.count)
            if host in seen and host not in self.good and host not in self.bad
        ]

    def _partners(self, host: int, crossing: bool, busy: set[int], tried: set[Pair]) -> Iterable[int]:
        used = {self.rack[partner] for partner in busy}
        met = {other for pair in self.outcome.rates if host in pair for other in pair}
        # somebody new: the path to the only partner of before may be at fault
        for other in sorted(self.good, key=lambda other: (other in met, other)):
            same = self.rack[other] == self.rack[host]
            if other in busy or (host, other) in tried or same == crossing:
                continue
            if crossing and (self.rack[other] in used or not self._rack_shown(self.rack[other], 1)):
                continue
            yield other

    def _verdict(self, fault: Fault, members: tuple[int, ...], rates: Rates, expected: float) -> Verdict:
        """rates: what the first member sends, and receives."""
        sending = None
        if rates is not None:
            sends, receives = (rate >= self.least * expected for rate in rates)
            sending = None if sends == receives else not sends
        return Verdict(fault, members, slower(rates), expected, sending)

    def _rack_shown(self, rack: int, team: int) -> bool:
        """Whether a rack has carried, with some other one, what is expected of so many pairs of hosts."""
        expected = self._expected(team)
        best = max((carried for pair, carried in self.outcome.across.items() if rack in pair), default=0.0)
        return expected is None or best >= self.least * expected

    def _suspect_racks(self) -> dict[int, int]:
        """Racks that have not carried what was expected of them, and with how many pairs of hosts."""
        suspects: dict[int, int] = {}
        for pair in self.outcome.across:
            if self._across_slow(pair):
                for rack in pair:
                    if not self._rack_shown(rack, self.teams[pair]):
                        suspects[rack] = max(suspects.get(rack, 0), self.teams[pair])
        return suspects

    def _racks_again(self) -> Step:
        # teams of before may have had hosts in them that turned out to be slow
        done: dict[int, Verdict] = {}
        tried: set[Pair] = set()
        for _ in range(_AGAIN_MOST):
            suspects = {rack: team for rack, team in self._suspect_racks().items() if rack not in done}
            pairs: list[Pair] = []
            busy: set[int] = set()
            for rack in suspects:
                able = [
                    (min(len(self._team(*pair)), suspects[rack]), len(self._team(*pair)), other)
                    for other in self.members
                    if other not in suspects and other not in busy and other not in done and other != rack
                    for pair in [(min(rack, other), max(rack, other))]
                    if pair not in tried and self._team(*pair) and self._rack_shown(other, 1)
                ]
                able = [
                    candidate for candidate in able if self._rack_shown(candidate[2], candidate[1])
                ] or able
                if rack in busy or not able:
                    continue
                other = max(able)[2]
                pairs.append((min(rack, other), max(rack, other)))
                busy.update((rack, other))
            if not pairs:
                break
            tried.update(pairs)
            yield from self._measure_racks(pairs)
            for pair in pairs:
                rack = pair[0] if pair[0] in suspects else pair[1]
                if self._across_slow(pair):
                    done[rack] = self._rack_verdict(rack, pair)
                    self.shown_by[rack] = pair
        self.slow_racks = done
        good_pairs = [
            pair
            for pair in self.outcome.across
            if self._across_slow(pair) and not any(rack in done for rack in pair)
        ]
        for again in _disjoint(good_pairs)[:_AGAIN_MOST]:
            yield from self._measure_racks(again)

    def _rack_verdict(self, rack: int, pair: Pair) -> Verdict:
        rate, expected = self.outcome.across[pair], self._expected(self.teams[pair]) or 0.0
        team = self._team(*pair)
        hosts = [host for members in team for host in members if self.rack[host] == rack]
        # one host that was measured with nobody of its rack: it is its link as well as the rack's
        if len(self.members[rack]) == 1 and len(hosts) == 1:
            rates = _seen_from(hosts[0], team[0], self.crossed[team[0]])
            return self._verdict(Fault.HOST, (hosts[0],), rates, expected)
        return Verdict(Fault.RACK, (rack,), rate, expected)

    def _pairs_again(self) -> Step:
        """Slow pairs of good hosts, in one rack or in good racks."""
        self.slow_pairs: dict[Pair, Verdict] = {}
        link, alone = self.outcome.link, self._alone()
        expected: dict[Pair, float] = {}
        if link:
            expected = {
                pair: link
                for pair, rates in self.inside.items()
                if slower(rates) < self.least * link and self._both_good(pair)
            }
        if alone:
            for pair, rates in self.crossed.items():
                racks = tuple(sorted(self.rack[host] for host in pair))
                if any(rack in self.slow_racks for rack in racks) or not self._both_good(pair):
                    continue
                key = (racks[0], racks[1])
                carried, team = self.outcome.across.get(key, 0.0), self.teams.get(key, 1)
                if self._across_slow(key):
                    carried = self._expected(team) or carried
                if slower(rates) < self.least * min(alone, carried / team):
                    expected[min(pair), max(pair)] = alone
        if self.hidden and expected:
            # Those that share an uplink are not known: each is to be alone.
            worst = sorted(expected, key=lambda pair: (slower(self.inside[pair]), pair))
            self.slow_pairs = {
                pair: Verdict(Fault.PATH, pair, slower(self.inside[pair]), expected[pair]) for pair in worst
            }
            return
        for again in self._few_crossing(expected)[:_AGAIN_MOST]:
            for pair, rates in (yield from self._measure(again)).items():
                if slower(rates) >= self.least * expected[pair]:
                    self.outcome.contended.append(pair)
                    continue
                self.slow_pairs[pair] = self._verdict(Fault.PATH, pair, rates, expected[pair])

    # ---- measuring what would be named

    def _confirm(self) -> Step:
        """What is good once when it is measured again alone is no fault."""
        confirmed: list[Verdict] = []
        remaining = {False: _JUDGED_MOST, True: _UPLINKS_JUDGED_MOST}
        severity = list(Fault)
        ranked = sorted(
            self.outcome.verdicts,
            key=lambda verdict: (
                severity.index(verdict.fault),
                verdict.rate / verdict.expected if verdict.expected else 0.0,
            ),
        )
        for verdict in ranked:
            uplink = verdict.fault in (Fault.RACK, Fault.RACKS)
            if verdict.fault is Fault.SILENT:
                confirmed.append(verdict)
            elif not remaining[uplink]:
                self.outcome.unjudged.append((verdict.fault, verdict.members))
            else:
                remaining[uplink] -= 1
                again = yield from self._confirmed(verdict)
                if again is None:
                    self.outcome.contended += [verdict.members[:2]] if verdict.fault is Fault.PATH else []  # type: ignore[list-item]
                else:
                    confirmed.append(again)
        self.outcome.verdicts = confirmed

    def _confirmed(self, verdict: Verdict) -> Generator[list[Pair], list[Rates], Verdict | None]:
        """The verdict as it was measured last, with its direction; None where it was good once."""
        if verdict.fault in (Fault.RACK, Fault.RACKS):
            return (yield from self._uplink_confirmed(verdict))
        allowed, clear = self.least * verdict.expected, 0
        for number in range(_CONFIRMATIONS):
            pair = self._pair_of_hosts(verdict, number)
            if pair is None:
                return verdict
            ((_, rates),) = (yield from self._measure([pair])).items()
            if slower(rates) >= allowed:
                return None
            verdict = self._as_measured(verdict, pair, rates)
            clear += slower(rates) < _CLEARLY * allowed
            if clear >= _CLEAR_MOST:
                break
        return verdict

    def _uplink_confirmed(self, verdict: Verdict) -> Generator[list[Pair], list[Rates], Verdict | None]:
        """The verdict with what was measured; None unless other racks clearly carry more in the same way.

        Where routes are fixed, some flows share a link and others have one alone, differently for each choice
        of hosts: so means of several are compared, by their standard errors.
        """
        ways: tuple[list[float], list[float]] = [], []
        usual: list[float] = []
        for number in range(_UPLINK_CONFIRMATIONS):
            team, like = self._team_of(verdict, number), self._team_like(verdict, number)
            if not team:
                return verdict
            if like:
                team, like = team[: len(like)], like[: len(team)]
                usual.append(statistics.mean(_together((yield from self._measure(like)).values())))
            else:
                usual.append(self._expected(len(team)) or 0.0)
            for way, carried in zip(ways, _together((yield from self._measure(team)).values()), strict=True):
                way.append(carried)
            if number + 1 < _UPLINK_CONFIRMATIONS_LEAST:
                continue
            expected, spread = _mean_and_error(usual)
            rate, error = min(_mean_and_error(way) for way in ways)
            margin = _CERTAIN * math.hypot(error, self.least * spread)
            if rate + margin < self.least * expected:
                return replace(verdict, rate=rate, expected=expected)
            if rate - margin > self.least * expected:
                return None
        return None

    def _team_of(self, verdict: Verdict, number: int) -> list[Pair]:
        if verdict.fault is Fault.RACKS:
            return self._team(verdict.members[0], verdict.members[1], number)
        (rack,) = verdict.members
        return self._team_beside_many(rack, len(self._team(*self.shown_by[rack])), number)

    def _team_like(self, verdict: Verdict, number: int) -> list[Pair]:
        """A team of other racks than the verdict's: each time of others that can have as many pairs, else of
        the largest.
        """
        size = len(self._team_of(verdict, number))
        fine = [rack for rack in self._fine_racks() if rack not in verdict.members]
        teams = {(rack, rack): min(size, len(self._able(rack))) for rack in fine}
        if verdict.fault is Fault.RACKS:
            teams = {
                (a, b): min(size, len(self._team(a, b))) for a, b in itertools.combinations(sorted(fine), 2)
            }
        most = max(teams.values(), default=0)
        choice = [racks for racks, team in teams.items() if team == most]
        if not most:
            return []
        a, b = random.Random(number).choice(choice)
        return self._team(a, b, number) if a != b else self._team_beside_many(a, most, number)

    def _fine_racks(self) -> list[int]:
        return [rack for rack in self.members if rack not in self.slow_racks and self._rack_shown(rack, 1)]

    def _team_beside_many(self, rack: int, size: int, number: int) -> list[Pair]:
        """So many hosts of a rack, each with a good one: of as many racks as there are."""
        order = random.Random(number)
        others = []
        for other in self._fine_racks():
            able = [host for host in self.members[other] if host in self.good]
            if other != rack:
                others.append(order.sample(able, len(able)))
        order.shuffle(others)
        partners = [host for level in itertools.zip_longest(*others) for host in level if host is not None]
        return list(zip(self._able(rack)[:size], partners, strict=False))

    def _as_measured(self, verdict: Verdict, pair: Pair, rates: Rates) -> Verdict:
        if verdict.fault is Fault.HOST:
            rates = _seen_from(verdict.members[0], pair, rates)
        return self._verdict(verdict.fault, verdict.members, rates, verdict.expected)

    def _pair_of_hosts(self, verdict: Verdict, number: int) -> Pair | None:
        """The two of a path; or a host and each time another good one, of its own rack where it has any."""
        if verdict.fault is Fault.PATH:
            return (verdict.members[0], verdict.members[1])
        (host,) = verdict.members
        near = [other for other in sorted(self.good) if other != host and self.rack[other] == self.rack[host]]
        far = [other for other in sorted(self.good) if self._rack_shown(self.rack[other], 1)]
        partners = near or [other for other in far if self.rack[other] != self.rack[host]]
        return (host, partners[number % len(partners)]) if partners else None

    def _both_good(self, pair: Pair) -> bool:
        return not any(host in self.bad for host in pair)

    def _few_crossing(self, pairs: Iterable[Pair]) -> list[list[Pair]]:
        """Rounds of disjoint pairs, with one pair at most across each rack's uplink."""
        rounds: list[tuple[list[Pair], set[object]]] = []
        for pair in pairs:
            racks = {self.rack[host] for host in pair}
            needs: set[object] = {*pair, *(f"rack {rack}" for rack in racks if len(racks) > 1)}
            for members, used in rounds:
                if not needs & used:
                    members.append(pair)
                    used |= needs
                    break
            else:
                rounds.append(([pair], needs))
        return [members for members, _ in rounds]

    # ---- verdicts

    def _conclude(self) -> None:
        seen = {host for pair in self.outcome.rates for host in pair}
        silent = {host for host in seen if host not in self.answered}
        verdicts = [Verdict(Fault.SILENT, (host,)) for host in sorted(silent)]
        verdicts += [self.bad[host] for host in sorted(self.bad) if host not in silent]
        verdicts += [
            verdict
            for verdict in self.slow_racks.values()
            if verdict.fault != Fault.HOST or verdict.members[0] not in silent
        ]
        named = {
            host
            for verdict in verdicts
            if verdict.fault in (Fault.HOST, Fault.SILENT)
            for host in verdict.members
        }
        for pair in self.outcome.across:
            paths = [
                path for path in self.slow_pairs if {self.rack[path[0]], self.rack[path[1]]} == set(pair)
            ]
            if any(rack in self.slow_racks for rack in pair) or not self._across_slow(pair):
                continue
            if self.teams[pair] > 1 and len(paths) == self.teams[pair]:
                verdicts.append(
                    Verdict(
                        Fault.RACKS,
                        pair,
                        self.outcome.across[pair],
                        self._expected(self.teams[pair]) or 0.0,
                    )
                )
                for path in paths:
                    del self.slow_pairs[path]
        verdicts += [verdict for pair, verdict in self.slow_pairs.items() if not named & set(pair)]
        self.outcome.verdicts = verdicts
        for (a, b), rates in self.crossed.items():
            for host in (a, b):
                self.outcome.best.setdefault(host, slower(rates))


def _together(rates: Iterable[Rates]) -> tuple[float, float]:
    """What pairs carry together, there and back."""
    answered = [of_pair for of_pair in rates if of_pair is not None]
    return sum(of_pair[0] for of_pair in answered), sum(of_pair[1] for of_pair in answered)


def _mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    return statistics.mean(values), statistics.stdev(values) / math.sqrt(len(values))


def _seen_from(host: int, pair: Pair, rates: Rates) -> Rates:
    """What a host of the pair sends, and receives."""
    return rates if rates is None or pair[0] == host else (rates[1], rates[0])


def _disjoint(pairs: Iterable[Pair]) -> list[list[Pair]]:
    rounds: list[list[Pair]] = []
    for pair in pairs:
        for members in rounds:
            if not {host for other in members for host in other} & set(pair):
                members.append(pair)
                break
        else:
            rounds.append([pair])
    return rounds
