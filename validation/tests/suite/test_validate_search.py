"""The search for slow links, paths and uplinks, on simulated clusters: exactly the faults are named."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import leaf_spine
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddl_validate.suite.search import Fault, Outcome, Pair, Rates, Verdict, matchings, most_rounds, search

LINK = 1e9
NOISE = 0.05


@dataclass
class Simulated:
    """A cluster. sends, receives: what is left of a host's link; paths: of that between two hosts; uplinks:
    of a rack's uplink, in bytes/s. Flows share uplinks by max-min fairness, and each figure has noise."""

    racks: Sequence[int]
    uplink: float
    seed: int = 0
    sends: dict[int, float] = field(default_factory=dict)
    receives: dict[int, float] = field(default_factory=dict)
    paths: dict[Pair, float] = field(default_factory=dict)
    uplinks: dict[int, float] = field(default_factory=dict)
    silent: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def measure(self, pairs: list[Pair]) -> list[Rates]:
        there = self._flows(pairs)
        back = self._flows([(b, a) for a, b in pairs])
        return [
            None if self.silent & set(pair) else (self._noisy(one), self._noisy(other))
            for pair, one, other in zip(pairs, there, back, strict=True)
        ]

    def _noisy(self, rate: float) -> float:
        return rate * self.random.uniform(1 - NOISE, 1 + NOISE)

    def _flows(self, pairs: list[Pair]) -> list[float]:
        limits = [
            LINK
            * min(self.sends.get(a, 1), self.receives.get(b, 1), self.paths.get((min(a, b), max(a, b)), 1))
            for a, b in pairs
        ]
        crossing = [i for i, (a, b) in enumerate(pairs) if self.racks[a] != self.racks[b]]
        rates = [limit if i not in set(crossing) else 0.0 for i, limit in enumerate(limits)]
        open_, left = set(crossing), {}
        for i in crossing:
            for rack in (self.racks[pairs[i][0]], self.racks[pairs[i][1]]):
                left[rack] = self.uplinks.get(rack, self.uplink)
        while open_:
            using = {rack: 0 for rack in left}
            for i in open_:
                for host in pairs[i]:
                    using[self.racks[host]] += 1
            step = min(
                min(left[rack] / number for rack, number in using.items() if number),
                min(limits[i] - rates[i] for i in open_),
            )
            for i in open_:
                rates[i] += step
                for host in pairs[i]:
                    left[self.racks[host]] -= step
            full = {rack for rack, rest in left.items() if rest <= 1e-6 * LINK}
            open_ = {
                i
                for i in open_
                if limits[i] - rates[i] > 1e-6 * LINK and not full & {self.racks[host] for host in pairs[i]}
            }
        return rates


def solve(cluster: Simulated, tolerance: float = 0.2, **given_: float) -> Outcome:
    asking = search(len(cluster.racks), cluster.racks, tolerance, **given_)
    rounds = 0
    try:
        pairs = next(asking)
        while True:
            rounds += 1
            hosts = [host for pair in pairs for host in pair]
            assert pairs and len(hosts) == len(set(hosts)), "pairs of a round must be disjoint"
            pairs = asking.send(cluster.measure(pairs))
    except StopIteration as stop:
        outcome: Outcome = stop.value
    assert outcome.rounds == rounds <= most_rounds(len(cluster.racks))
    return outcome


def named(outcome: Outcome) -> set[tuple[str, tuple[int, ...]]]:
    return {(one.fault.value, one.members) for one in outcome.verdicts}


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Simulated, set[tuple[str, tuple[int, ...]]]]:
    """2 to 1024 hosts in 1 to 32 uneven racks, with up to 3 faults that can be told apart.

    Nobody can tell which of two is slow: faulty hosts are fewer than half of those that are compared, and
    faulty uplinks fewer than half of the racks. A rack has one kind of fault; its uplink's shows where two
    good hosts or more can load it. Paths count where the search goes: in the matchings of a rack.
    """
    count = draw(st.integers(1, 32))
    most = draw(st.sampled_from([1, 2, 3, 5, 9, 32]))
    sizes = draw(st.lists(st.integers(1, most), min_size=count, max_size=count).filter(lambda s: sum(s) > 1))
    if draw(st.booleans()):
        sizes = [sizes[0] + 1] * count
    racks = [rack for rack, size in enumerate(sizes) for _ in range(size)]
    # the uplinks carry a half to all of what the hosts of a large rack can send
    uplink = LINK * max(1.0, draw(st.sampled_from([0.5, 1.0])) * max(sizes))
    share = min(1.0, uplink / (LINK * max(sizes)))
    made = Simulated(racks, uplink, seed=draw(st.integers(0, 999)))
    members = [[host for host, own in enumerate(racks) if own == rack] for rack in range(count)]
    expected: set[tuple[str, tuple[int, ...]]] = set()
    touched: set[int] = set()
    left = draw(st.sampled_from([0.1, 0.3, 0.5]))
    hosts_left = (len(racks) - 1) // 2 if count == 1 else min(3, (count - 1) // 2)
    least = draw(st.integers(0, 3))
    for kind in draw(st.lists(st.sampled_from(["host", "path", "rack"]), min_size=least, max_size=3)):
        rack = draw(st.integers(0, count - 1))
        if kind == "rack":
            # compared with racks of two hosts or more, of which most are good and load it as much
            able = [size for size in sizes if size >= 2]
            if len(able) >= 3 + 2 * len(made.uplinks) and rack not in touched and sizes[rack] >= 2:
                loaded = min(sizes[rack], sorted(able)[len(able) // 2 - 1])
                # as many pairs may carry less each where others have more pairs on an equal uplink
                made.uplinks[rack] = left * 0.9 * min(LINK * loaded, uplink) * share
                expected.add(("rack", (rack,)))
                touched.add(rack)
            continue
        if kind == "host" and hosts_left and rack not in touched and sizes[rack] != 2:
            host = draw(st.sampled_from(members[rack]))
            side = draw(st.sampled_from(["sends", "receives", "both"]))
            if side != "receives":
                made.sends[host] = left
            if side != "sends":
                made.receives[host] = left
            expected.add(("host", (host,)))
            touched.add(rack)
            hosts_left -= 1
        elif kind == "path" and sizes[rack] > 3 and rack not in touched:
            matched = [pair for one in matchings(sizes[rack]) for pair in one]
            a, b = draw(st.sampled_from(matched))
            pair = (members[rack][a], members[rack][b])
            made.paths[pair] = left
            expected.add(("path", pair))
            touched.add(rack)
    return made, expected


@settings(max_examples=150, derandomize=True)
@given(clusters())
def test_exactly_the_faults_are_named(
    case: tuple[Simulated, set[tuple[str, tuple[int, ...]]]],
) -> None:
    cluster, expected = case
    assert named(solve(cluster)) == expected


@pytest.mark.parametrize("hosts", [*range(2, 20), 64, 100, 1024])
def test_everybody_is_measured_and_rounds_grow_with_the_logarithm(hosts: int) -> None:
    rounds = matchings(hosts)
    assert {host for one in rounds for pair in one for host in pair} == set(range(hosts))
    assert len(rounds) <= max(8, math.ceil(math.log2(hosts)))
    for one in rounds:
        flat = [host for pair in one for host in pair]
        assert len(flat) == len(set(flat))


def test_the_direction_is_told() -> None:
    slow_to_send = solve(Simulated([0] * 5, LINK, sends={3: 0.1})).verdicts
    slow_to_receive = solve(Simulated([0] * 5, LINK, receives={3: 0.1})).verdicts
    both = solve(Simulated([0] * 5, LINK, sends={3: 0.1}, receives={3: 0.1})).verdicts
    assert [one.sending for one in (*slow_to_send, *slow_to_receive, *both)] == [True, False, None]
    (one,) = both
    assert one.members == (3,) and one.rate == pytest.approx(0.1 * LINK, rel=0.06)
    assert one.expected == pytest.approx(LINK, rel=0.06)


def test_a_silent_host_is_named_as_such() -> None:
    outcome = solve(Simulated([0, 0, 0, 1, 1, 1], 3 * LINK, silent={4}))
    assert named(outcome) == {("silent", (4,))}


def test_of_three_hosts_two_tell_which_one_is_slow() -> None:
    assert named(solve(Simulated([0] * 3, LINK, sends={1: 0.1}))) == {("host", (1,))}


def test_contention_is_nobodys_fault() -> None:
    """Every pair across uplinks that carry a quarter of the hosts' rates is slow beside others."""
    outcome = solve(Simulated([rack for rack in range(4) for _ in range(8)], 2 * LINK))
    assert outcome.verdicts == [] and outcome.uplink == pytest.approx(2 * LINK, rel=0.06)


def test_a_pair_that_is_slow_beside_another_one_alone_is_contention() -> None:
    """Pairs of a round that share something which nobody knows of, such as a switch's backplane."""

    class Blocking(Simulated):
        def measure(self, pairs: list[Pair]) -> list[Rates]:
            rates = super().measure(pairs)
            at = pairs.index((1, 2)) if (1, 2) in pairs and len(pairs) > 1 else None
            return [(0.1 * LINK, 0.1 * LINK) if number == at else one for number, one in enumerate(rates)]

    outcome = solve(Blocking([0] * 6, LINK))
    assert outcome.verdicts == [] and outcome.contended == [(1, 2)]
    assert solve(Simulated([0] * 6, LINK)).contended == []


def test_large_racks_meet_their_like() -> None:
    """Three racks have two hosts or more; only these show that the uplink of one carries less than two."""
    racks = [0, 1, 2, 3, 3, 3, 4, 5, 6, 7, 7, 8, 8, 8]
    slow = Simulated(racks, 3 * LINK, uplinks={3: 0.7 * LINK})
    assert named(solve(slow)) == {("rack", (3,))}


def test_the_largest_of_many_racks_meet_each_other() -> None:
    """What the uplink of one of three large racks lacks shows only between these three."""
    sizes = [9, 2, 2, 2, 9, 2, 2, 2, 2, 9]
    racks = [rack for rack, size in enumerate(sizes) for _ in range(size)]
    slow = Simulated(racks, 9 * LINK, uplinks={4: 2.2 * LINK})
    assert named(solve(slow)) == {("rack", (4,))}


def test_an_uplink_that_only_small_racks_load_is_good_for_all_that_anybody_can_tell() -> None:
    racks = [0, 0, 0, 0, 1, 2, 3, 4]
    assert solve(Simulated(racks, 4 * LINK, uplinks={0: LINK})).verdicts == []


def test_the_path_to_the_only_partner_is_not_the_host() -> None:
    """Host 23 is paired with one host of its rack, and that path is at fault."""
    slow = Simulated([*range(15), *[15] * 9], 4.5 * LINK, paths={(15, 23): 0.1})
    assert named(solve(slow)) == {("path", (15, 23))}


@pytest.mark.parametrize("size", [2, 3])
def test_the_path_between_two_racks(size: int) -> None:
    racks = [rack for rack in range(4) for _ in range(size)]
    paths = {(a, b): 0.1 for a in range(size) for b in range(size, 2 * size)}
    (one,) = solve(Simulated(racks, 3 * LINK, paths=paths)).verdicts
    assert (one.fault, one.members) == (Fault.RACKS, (0, 1))
    assert one.rate == pytest.approx(0.1 * size * LINK, rel=0.06)
    assert one.expected == pytest.approx(size * LINK, rel=0.06)


def test_nobody_can_tell_which_of_two_is_slow_unless_the_rate_is_known() -> None:
    slow = Simulated([0, 0], LINK, sends={0: 0.1})
    assert solve(slow).verdicts == []
    (one,) = solve(slow, link=LINK).verdicts
    assert one == Verdict(Fault.PATH, (0, 1), one.rate, LINK, True)
    uplinks = Simulated([0, 0, 0, 1, 1, 1], 3 * LINK, uplinks={0: 0.1 * LINK})
    outcome = solve(uplinks)
    assert outcome.verdicts == [] and outcome.across[(0, 1)] == pytest.approx(0.1 * LINK, rel=0.06)


def test_a_slow_host_in_one_of_two_racks_of_two() -> None:
    assert named(solve(Simulated([0, 0, 1, 1], LINK / 2, sends={2: 0.1}, receives={2: 0.1}))) == {
        ("host", (2,))
    }


class Exact(Simulated):
    """Figures without noise, so that a rate can be exactly the least that is tolerated."""

    def _noisy(self, rate: float) -> float:
        return rate


@pytest.mark.parametrize(
    ("racks", "faults"),
    [
        ([0] * 6, {"sends": {3: 0.5}}),
        ([0] * 6, {"paths": {(0, 1): 0.5}}),
        ([0, 1, 2, 3, 4], {"receives": {3: 0.5}}),
        ([rack for rack in range(4) for _ in range(2)], {"uplinks": {1: LINK}}),
        ([rack for rack in range(4) for _ in range(2)], {"paths": {(0, 2): 0.5}}),
    ],
)
def test_what_is_just_tolerated_is_not_even_measured_again(
    racks: list[int], faults: dict[str, dict[Any, float]]
) -> None:
    just = solve(Exact(racks, 2 * LINK, **faults), tolerance=0.5)  # type: ignore[arg-type]
    assert just.verdicts == just.contended == []
    assert just.rounds == solve(Exact(racks, 2 * LINK), tolerance=0.5).rounds


def test_many_slow_paths_of_one_host_take_a_few_rounds_more() -> None:
    """Host 0 is good with host 7: what is slow with the others are paths, measured again one at a time, and
    four times more before they are named.
    """
    paths = {(0, other): 0.1 for other in range(1, 7)}
    outcome = solve(Simulated([0] * 8, LINK, paths=paths))
    assert outcome.rounds == len(matchings(8)) + 4 + 4 * 4
    assert len(outcome.verdicts) == 4 and named(outcome) < {("path", pair) for pair in paths}


def test_the_promised_number_of_rounds_grows_by_two_when_hosts_double() -> None:
    assert [most_rounds(hosts) for hosts in (1, 2, 3, 4, 512, 1024)] == [451, 451, 453, 453, 467, 469]


@pytest.mark.parametrize("racks", [[0] * 5, [*range(5)]])
def test_a_silent_host_has_no_rate(racks: list[int]) -> None:
    assert solve(Simulated(racks, LINK, silent={4})).best[4] == 0.0


def test_the_direction_that_is_just_tolerated_is_not_the_slow_one() -> None:
    (one,) = solve(Exact([0] * 5, LINK, sends={3: 0.5}, receives={3: 0.1}), tolerance=0.5).verdicts
    assert (one.fault, one.members, one.sending) == (Fault.HOST, (3,), False)


def test_hosts_that_are_good_across_racks_are_not_measured_again() -> None:
    """Two hosts are slow with each other, and each is good with another rack: only their path is left."""
    racks = [rack for rack in range(5) for _ in range(2)]
    outcome = solve(Simulated(racks, 2 * LINK, paths={(0, 1): 0.1}))
    assert named(outcome) == {("path", (0, 1))}
    assert outcome.rounds == solve(Simulated(racks, 2 * LINK)).rounds + 1 + 4


def test_the_hosts_of_a_rack_do_not_share_its_uplink_when_measured_again() -> None:
    """Two hosts that were slow with each other, and then across, where both shared an uplink for one."""
    racks = [rack for rack in range(5) for _ in range(2)]
    outcome = solve(Simulated(racks, LINK, paths={(0, 1): 0.1}))
    assert named(outcome) == {("path", (0, 1))}


def test_a_slow_uplink_is_told_with_what_others_carry() -> None:
    racks = [rack for rack in range(4) for _ in range(3)]
    (one,) = solve(Simulated(racks, 3 * LINK, uplinks={3: 0.5 * LINK})).verdicts
    assert one.fault == Fault.RACK and one.members == (3,)
    assert one.rate == pytest.approx(0.5 * LINK, rel=0.06)
    assert one.expected == pytest.approx(3 * LINK, rel=0.06)


def test_a_slow_uplink_that_one_pair_shows_is_the_racks_unless_it_has_one_host() -> None:
    """The other racks have one host each."""
    several = Simulated([0, 0, 0, 1, 2, 3, 4], 3 * LINK, uplinks={0: 0.1 * LINK})
    assert named(solve(several)) == {("rack", (0,))}
    two = Simulated([0, 0, 1, 2, 3, 4], 3 * LINK, uplinks={0: 0.1 * LINK})
    assert named(solve(two, link=LINK)) == {("rack", (0,))}
    one = Simulated([0, 1, 2, 3, 4], 3 * LINK, uplinks={0: 0.1 * LINK})
    assert named(solve(one)) == {("host", (0,))}


@pytest.mark.parametrize("host", range(5))
def test_the_direction_is_told_of_racks_with_one_host(host: int) -> None:
    racks = list(range(5))
    (slow_to_send,) = solve(Simulated(racks, LINK, sends={host: 0.1})).verdicts
    (slow_to_receive,) = solve(Simulated(racks, LINK, receives={host: 0.1})).verdicts
    assert (slow_to_send.members, slow_to_send.sending) == ((host,), True)
    assert (slow_to_receive.members, slow_to_receive.sending) == ((host,), False)


def test_the_path_between_two_racks_with_one_host_is_one_between_hosts() -> None:
    assert named(solve(Simulated([0, 1, 2, 3, 4], 3 * LINK, paths={(1, 2): 0.1}))) == {("path", (1, 2))}


@pytest.mark.parametrize("silent", range(15))
def test_a_slow_uplink_is_named_whichever_host_is_silent(silent: int) -> None:
    racks = [rack for rack in range(5) for _ in range(3)]
    found = named(solve(Simulated(racks, 3 * LINK, silent={silent}, uplinks={1: 0.5 * LINK})))
    assert found == {("silent", (silent,)), ("rack", (1,))}


def searched(
    cluster: leaf_spine.LeafSpine, tolerance: float, hidden: bool
) -> set[tuple[str, tuple[int, ...]]]:
    """What is named in a simulated cluster. hidden: its switches are not known."""
    asking = search(len(cluster.leaf), None if hidden else cluster.leaf, tolerance, kinds=cluster.kinds)
    try:
        pairs = next(asking)
        while True:
            pairs = asking.send(cluster.measure(pairs))
    except StopIteration as stop:
        outcome: Outcome = stop.value
    assert outcome.rounds <= sum(most_rounds(count) for count in Counter(cluster.kinds).values())
    return named(outcome)


MANY = pytest.mark.parametrize("runs", [150, pytest.param(5_000, marks=pytest.mark.long)])
HIDDEN = pytest.mark.parametrize("hidden", [True, False], ids=["racks hidden", "racks known"])


@MANY
@HIDDEN
def test_healthy_clusters(runs: int, hidden: bool) -> None:
    """Uplinks of a host's rate to an eighth of it, dragonflies, adaptive or fixed routes, hosts of two
    speeds, noise of 1 to 15 %.
    """
    wrong = {seed: found for seed in range(runs) if (found := searched(*leaf_spine.cluster(seed), hidden))}
    assert len(wrong) <= runs / 1000, wrong


@MANY
@HIDDEN
def test_clusters_with_one_to_three_faults(runs: int, hidden: bool) -> None:
    missed, more = {}, {}
    for seed in range(runs):
        cluster, tolerance = leaf_spine.cluster(seed, slow=1 + seed % 3, uplinks=not hidden)
        found = searched(cluster, tolerance, hidden)
        if lacking := cluster.faults - found:
            missed[seed] = lacking
        if others := found - cluster.faults:
            more[seed] = others
    assert len(missed) <= runs / 100, missed
    assert len(more) <= runs / 100, more
