"""The all-reduce benchmark's layouts, bandwidth lower bounds and sizes, against cases worked out by hand."""

from __future__ import annotations

import pytest

from ddl_validate.allreduce.bounds import bandwidth_lower_bound, payload_rate, tiers
from ddl_validate.allreduce.errors import BenchError
from ddl_validate.allreduce.launch import same_placement
from ddl_validate.allreduce.scenarios import NAMED, Scenario, named
from ddl_validate.allreduce.sizes import parse_size, parse_sizes, show_seconds, show_size

MIB = 1 << 20


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        # 2 (4-1)/4 x 67108864 B over 956.4 Mbit/s: 100663296 x 8 / 956.4e6
        ("4x2-1rack", 0.842),
        # 2 (2-1)/2 x 67108864 B over 191.3 Mbit/s: 67108864 x 8 / 191.28e6
        ("4x2-2racks", 2.807),
        ("4x2-2racks-shuffled", 2.807),
        ("3+2+2+1-2racks", 2.807),
        # 2 (4-1)/4 over the uplinks: 1.5 times as much
        ("8x1-4racks", 4.210),
    ],
)
def test_bound_of_the_named_scenarios(name: str, seconds: float) -> None:
    bound = bandwidth_lower_bound(named(name), 64 * MIB)
    assert bound == pytest.approx(seconds, rel=1e-3)
    half = bandwidth_lower_bound(named(name), 32 * MIB)
    assert half is not None and bound == pytest.approx(2 * half)


def test_the_slowest_tier_sets_the_bound() -> None:
    # 8 hosts: 2 x 7/8 x 1e6 B at 11.955e6 B/s = 146.4 ms; 2 racks: 1e6 B at 11.955e6 B/s = 83.6 ms
    same = Scenario("x", (1,) * 8, 2, host_rate="100mbit", uplink_rate="100mbit")
    assert [tier.name for tier in tiers(same)] == ["host links", "rack uplinks"]
    assert [tier.seconds(10**6) for tier in tiers(same)] == pytest.approx([0.14638, 0.08365], rel=1e-3)
    assert bandwidth_lower_bound(same, 10**6) == pytest.approx(0.14638, rel=1e-3)
    slower = Scenario("x", (1,) * 8, 2, host_rate="100mbit", uplink_rate="10mbit")
    assert bandwidth_lower_bound(slower, 10**6) == pytest.approx(0.8365, rel=1e-3)


def test_no_bound_without_links_of_a_known_rate() -> None:
    assert bandwidth_lower_bound(named("1x2"), MIB) is None
    assert bandwidth_lower_bound(Scenario("x", (1, 1), host_rate=None, uplink_rate=None), MIB) is None


def test_payload() -> None:
    assert payload_rate("1gbit") * 8 == pytest.approx(956.4e6, rel=1e-4)
    with pytest.raises(BenchError, match="rate '1Gb': write a whole number and kbit, mbit or gbit"):
        payload_rate("1Gb")


def test_numbering_of_ranks() -> None:
    assert named("4x2-2racks").sequence() == ["h1", "h1", "h2", "h2", "h3", "h3", "h4", "h4"]
    assert named("4x2-2racks-shuffled").sequence() == ["h1", "h3", "h2", "h4", "h1", "h3", "h2", "h4"]
    assert named("3+2+2+1-2racks").sequence() == ["h1", "h1", "h1", "h2", "h2", "h3", "h3", "h4"]
    uneven = Scenario("x", (3, 2, 2, 1), 2, "shuffled")
    assert uneven.sequence() == ["h1", "h3", "h2", "h4", "h1", "h3", "h2", "h1"]
    for scenario, _ in NAMED.values():
        counts = [scenario.sequence().count(host) for host in scenario.hosts]
        assert counts == list(scenario.slots)


def test_topology_and_dimensions() -> None:
    assert named("4x2-2racks").dimensions() == (2, 2, 2)
    assert named("8x1-4racks").dimensions() == (1, 2, 4)
    assert named("3+2+2+1-2racks").dimensions() is None
    assert Scenario("x", (1, 1, 1), 2).dimensions() is None
    assert Scenario("x", (1, 1, 1), 2).topology() == {
        "version": 1,
        "groups": [{"name": "rack1", "hosts": ["h1", "h2"]}, {"name": "rack2", "hosts": ["h3"]}],
    }


def test_placement_is_compared_by_which_ranks_share_a_host() -> None:
    assert same_placement(["localhost"] * 2, ["node7"] * 2)
    assert same_placement(["a", "b", "a"], ["a.site", "b.site", "a.site"])
    assert not same_placement(["a", "b", "a", "b"], ["a", "a", "b", "b"])
    assert not same_placement(["a", "b"], ["a"])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: named("4x2"), r"unknown scenario '4x2'; one of: 4x2-1rack, .*--hosts 3,2,2,1"),
        (lambda: Scenario("x", (2, 0)), "give the ranks of each host, 1 at least"),
        (lambda: Scenario("x", (1, 1), 3), r"3 racks for 2 host\(s\); 1 to 2"),
        (lambda: Scenario("x", (1,)), "an all-reduce needs 2"),
        (lambda: Scenario("x", (1, 1), names=("a", "a")), "all different"),
        (lambda: parse_size("1T"), "size '1T': write a number and K, M or G"),
        (lambda: parse_size("10"), "a multiple of 4 bytes"),
        (lambda: parse_sizes("1M-64K"), "the first is larger than the last"),
    ],
)
def test_bad_layouts_and_sizes(make: object, message: str) -> None:
    with pytest.raises(BenchError, match=message):
        make()  # type: ignore[operator]


def test_sizes() -> None:
    assert parse_sizes("64K,4096,1MiB,64KiB") == (4096, 65536, MIB)
    assert parse_sizes("1M-8M") == (MIB, 2 * MIB, 4 * MIB, 8 * MIB)
    assert [show_size(size) for size in (4096, MIB, 3 << 30, 20)] == ["4 KiB", "1 MiB", "3 GiB", "20 B"]
    for size in (4, 4096, 12 * MIB):
        assert parse_size(show_size(size).replace(" B", "")) == size
    assert [show_seconds(s) for s in (2.807, 0.0469, 1.7e-6)] == ["2.81 s", "46.9 ms", "1.7 µs"]
