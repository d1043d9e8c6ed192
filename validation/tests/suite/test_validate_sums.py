"""Whose part makes sums wrong: the bisection on simulated faults, and what becomes a finding."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddl_validate.suite.bisection import Suspects, bisect
from ddl_validate.suite.checks.sums import findings
from ddl_validate.suite.model import Kind
from ddl_validate.suite.probe.exact import is_wrong, judged, largest, whole_numbers

NAMES = [f"h{number}" for number in range(64)]


def solve(
    count: int, bad: set[int], alone: bool = False, pairs: set[frozenset[int]] | None = None
) -> Suspects:
    """alone: hosts sum wrongly also by themselves. pairs: of hosts that are wrong together only."""
    asking = bisect(range(count))
    try:
        groups = next(asking)
        while True:
            flat = [host for group in groups for host in group]
            assert flat
            assert len(flat) == len(set(flat)), "groups of a round must be disjoint"
            wrong = [
                (bool(bad & set(group)) and (alone or len(group) > 1))
                or any(pair <= set(group) for pair in pairs or ())
                for group in groups
            ]
            groups = asking.send(wrong)
    except StopIteration as stop:
        found: Suspects = stop.value
    if len(bad) <= 3:
        assert found.rounds <= 2 * math.ceil(math.log2(max(count, 2))) + 8
    return found


@settings(max_examples=300, derandomize=True)
@given(st.data())
def test_every_culprit_is_found_and_nobody_else(data: st.DataObject) -> None:
    """As long as there are good hosts to sum with, of which one is known to be good."""
    count = data.draw(st.integers(3, 64))
    alone = data.draw(st.booleans())
    most = count if alone else min(3, count - 2)
    bad = data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=most))
    found = solve(count, bad, alone)
    assert (found.culprits, found.undecided) == (sorted(bad), [])


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8, 64])
def test_rounds_grow_with_the_logarithm(count: int) -> None:
    for host in range(count):
        assert solve(count, {host}, alone=True).culprits == [host]


def test_of_two_hosts_that_are_right_alone_both_are_named() -> None:
    assert solve(2, {1}) == Suspects([], [(0, 1)], 1)


def test_two_hosts_that_are_wrong_together_only() -> None:
    found = solve(8, set(), pairs={frozenset({0, 7})})
    assert found.culprits == [] and found.undecided == [tuple(range(8))]
    assert solve(3, set(), pairs={frozenset({0, 1})}).undecided == [(0, 1)]
    found = solve(8, set(), pairs={frozenset({6, 7})})
    assert found.culprits == [] and found.undecided == [(6, 7)]


@pytest.mark.parametrize(
    ("kind", "ranks"), [("bfloat16", 300), ("bfloat16", 1000), ("float32", 50), ("float32", 20_000)]
)
def test_sums_are_exact_in_their_type(kind: str, ranks: int) -> None:
    most, size = largest(kind, ranks), 50
    parts = [whole_numbers(rank, size, ranks, most) for rank in range(ranks)]
    sums = np.sum(np.abs(parts), axis=0)
    assert 0 < sums.max() <= (256 if kind == "bfloat16" else 1 << 24)
    assert np.max(parts) > 0 > np.min(parts) and np.max(np.abs(parts)) <= most
    if most > 1:
        assert len({part.tobytes() for part in parts}) == ranks


def rank(wrong: int = 0, *digests: str) -> dict[str, Any]:
    return {"wrong": {"float32": wrong} if wrong else {}, "digests": list(digests or ("x", "x"))}


def test_what_results_of_ranks_say() -> None:
    assert not is_wrong(judged([rank(), rank()]))
    told = judged([rank(), rank(5), rank()])
    assert (told["wrong"], told["elements"], told["types"]) == ([1], 5, ["float32"]) and is_wrong(told)
    # another sum than the others, and another one than the time before
    for odd, ranks in ((2, [rank(), rank(), rank(0, "y", "y")]), (1, [rank(), rank(0, "x", "y"), rank()])):
        verdict = judged(ranks)
        assert (verdict["wrong"], verdict["differs"]) == ([], [odd]) and is_wrong(verdict)


def printed(**more: Any) -> dict[str, Any]:
    return {
        **{"wrong": [], "differs": [], "elements": 0, "types": [], "products": [], "sums": 51},
        **{"culprits": [], "undecided": [], "rounds": 0},
        **more,
    }


def named(told: dict[str, Any], each: int = 2) -> set[tuple[str, tuple[str, ...]]]:
    found = findings(told, NAMES, each)
    assert all(one.kind is Kind.WRONG_RESULT and one.remedy for one in found)
    return {(one.where, one.hosts) for one in found}


def test_findings() -> None:
    assert named(printed()) == set()
    wrong = {"wrong": [4, 5], "elements": 9, "types": ["int64"]}
    assert named(printed(culprits=[2], **wrong)) == {("host h2", ("h2",))}
    (one,) = findings(printed(culprits=[2], **wrong), NAMES, 2)
    assert "on 2 ranks 9 elements (int64) differ from numpy's; 0 are expected" in one.text
    # it computes wrongly by itself: sums that were wrong now and then are an effect
    assert named(printed(products=[3], undecided=[[2, 3]], **wrong)) == {("host h3", ("h3",))}
    (one,) = findings(printed(products=[3], culprits=[3], **wrong), NAMES, 2)
    assert "products of matrices" in one.text and "whenever it takes part" in one.text
    # nobody can say which
    both = {("hosts h0 and h1", ())}
    assert named(printed(undecided=[[0, 1]], wrong=[0, 1, 2, 3], elements=1, types=["int64"])) == both
    # it happened once, on the ranks of one host alone
    assert named(printed(undecided=[[0, 1, 2, 3]], differs=[4])) == {("host h2", ("h2",))}
    several = {("hosts h0, h1, h2 and h3", ())}
    assert named(printed(undecided=[[0, 1, 2, 3]], differs=[1, 4])) == several
