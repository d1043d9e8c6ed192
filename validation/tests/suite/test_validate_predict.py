"""What measured links let one expect, held against bounds of all-reduces that are worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from program_runner import Environment
from validate_documents import cluster

from ddl_validate.suite.model import CheckResult, Figure, Status
from ddl_validate.suite.predict import Links, description, links_before, links_of, planned, share_a_machine

_SIZE = 64 << 20
_LINKS = Links(memory=20e9, link=1e9, latency=1e-5, uplink=2e9)


def test_links_are_medians_and_a_slow_one_is_no_reason_to_expect_less() -> None:
    figures = [
        Figure("link.bandwidth", f"host {name}", value, "B/s")
        for name, value in (("a", 10.0), ("b", 11.0), ("c", 1.0), ("d", 12.0), ("e", 0.0))
    ]
    found = links_of([*figures, Figure("host.memory", "host a", 5.0, "B/s")])
    assert found == Links(memory=5.0, link=10.5, latency=None, uplink=None)
    whole = links_before(cluster(16, 4).results)
    assert whole.link == pytest.approx(11.2e9, rel=0.02) and whole.uplink == pytest.approx(44.8e9, rel=0.02)


@pytest.mark.parametrize(
    ("ranks", "racks", "bound"),
    [
        # a ring of P hosts sends 2 (P-1)/P of the size over each link
        ([1, 1], None, 1.0 * _SIZE / 1e9),
        ([1, 1, 1, 1], None, 1.5 * _SIZE / 1e9),
        ([4, 4], None, 1.0 * _SIZE / 1e9),
        ([3, 2, 2], None, 4 / 3 * _SIZE / 1e9),
        # in a rack of 4 as above; 2 racks exchange the size once, over an uplink of twice the rate
        ([1] * 8, [0] * 4 + [1] * 4, 1.5 * _SIZE / 1e9),
    ],
)
def test_a_large_all_reduce_takes_what_its_links_need(
    env: Environment, tmp_path: Path, ranks: list[int], racks: list[int] | None, bound: float
) -> None:
    told = planned(env.prefix, description(ranks, racks, _LINKS, 0.1, _SIZE), [_SIZE], tmp_path)
    assert 0.99 * bound < told[_SIZE] < 1.6 * bound
    slow = Links(memory=20e9, link=1e8, latency=1e-5, uplink=2e8)
    slower = planned(env.prefix, description(ranks, racks, slow, 0.1, _SIZE), [_SIZE], tmp_path)
    assert slower[_SIZE] == pytest.approx(10 * told[_SIZE], rel=0.25)


def test_a_reduction_reads_two_arrays_and_writes_one() -> None:
    """Of 20 GB/s that the memory copies at, sums are made at a third."""
    told = description([2, 2], None, _LINKS, 0.1, _SIZE)
    assert told["device"]["reduce"] == pytest.approx(20e9 / 3)
    assert told["tiers"][0]["bandwidth"] == 20e9


@pytest.mark.parametrize(
    ("ranks", "racks", "members"),
    [
        ([4], None, {"host": 4}),
        ([2, 2, 2], None, {"host": 2, "cluster": 3}),
        ([3, 2, 2], None, {"host": [3, 2, 2], "cluster": 3}),
        ([1] * 4, [7, 7, 7, 7], {"host": 1, "cluster": 4}),
        ([1] * 4, [0, 1, 0, 1], {"host": 1, "rack": 2, "cluster": 2}),
        ([1] * 5, [0, 1, 0, 1, 2], {"host": 1, "rack": [2, 2, 1], "cluster": 3}),
    ],
)
def test_tiers_of_hosts_and_racks(
    ranks: list[int], racks: list[int] | None, members: dict[str, object]
) -> None:
    tiers = description(ranks, racks, _LINKS, 0.1, _SIZE)["tiers"]
    assert {tier["name"]: tier["members"] for tier in tiers} == members
    rates = {"host": 20e9, "rack": 1e9, "cluster": 2e9 if "rack" in members else 1e9}
    assert {tier["name"]: tier["bandwidth"] for tier in tiers} == {name: rates[name] for name in members}


def test_a_small_one_takes_latencies(env: Environment, tmp_path: Path) -> None:
    late = Links(memory=20e9, link=1e9, latency=1e-3)
    told = planned(env.prefix, description([1, 1], None, late, 0.1, 4096), [4096, 8192], tmp_path)
    assert 1e-3 <= told[4096] < 5e-3 and told[8192] >= told[4096]


def test_one_rank_exchanges_nothing_and_links_must_be_measured(env: Environment, tmp_path: Path) -> None:
    nothing = Links(None, None, None)
    assert planned(env.prefix, description([1], None, nothing, 0.1, 1), [1, 2], tmp_path) == {1: 0.0, 2: 0.0}
    with pytest.raises(ValueError, match="no link between hosts was measured"):
        description([1, 1], None, nothing, 0.1, 1)


def test_hosts_of_one_machine_are_noticed() -> None:
    def imports(*boots: str) -> CheckResult:
        facts = {"boots": {f"h{number}": boot for number, boot in enumerate(boots)}}
        return CheckResult("imports", "imports", Status.PASSED, facts=facts)

    assert share_a_machine([imports("x", "y", "x")])
    assert not share_a_machine([imports("x", "y")]) and not share_a_machine([])
