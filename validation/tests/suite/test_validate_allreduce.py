"""The check `allreduce` of `wmlce validate`: its tiers, what the timing program tells, and real ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from program_runner import Environment

from ddl_validate.allreduce.launch import MARK
from ddl_validate.suite.bench import Bench, Host
from ddl_validate.suite.checks import allreduce
from ddl_validate.suite.checks.allreduce import Tier, WrongSum, measured, tiers
from ddl_validate.suite.levels import LEVELS
from ddl_validate.suite.model import CheckResult, Figure, Kind, Status


def hosts(*racks: int) -> tuple[Host, ...]:
    return tuple(Host(f"h{number}", 4, rack, {}) for number, rack in enumerate(racks))


def shown(found: list[Tier]) -> list[tuple[str, list[str], int]]:
    return [(tier.where, [host.name for host in tier.hosts], tier.ranks) for tier in found]


def test_tiers_from_the_inside_out() -> None:
    assert shown(tiers(hosts(0), 2, False)) == [("within a host", ["h0"], 2)]
    assert tiers(hosts(0), 1, False) == []
    assert shown(tiers(hosts(0, 0), 1, False)) == [("between hosts", ["h0", "h1"], 1)]
    assert shown(tiers(hosts(0, 0, 0), 2, False)) == [
        ("within a host", ["h0"], 2),
        ("between hosts", ["h0", "h1", "h2"], 1),
        ("all ranks", ["h0", "h1", "h2"], 2),
    ]
    assert shown(tiers(hosts(0, 0, 1, 1), 4, True)) == [
        ("within a host", ["h0"], 4),
        ("between hosts of a rack", ["h0", "h1"], 1),
        ("between racks", ["h0", "h2"], 1),
        ("all ranks", ["h0", "h1", "h2", "h3"], 4),
    ]
    assert shown(tiers(hosts(0, 1), 1, True)) == [("between racks", ["h0", "h1"], 1)]


def printed(*events: dict[str, Any]) -> str:
    return "\n".join(["a launcher's words", *(MARK + json.dumps(event) for event in events)])


def test_what_the_timing_program_tells() -> None:
    one = {"event": "size", "bytes": 4096, "seconds": [3.0, 1.0, 2.0]}
    end = {"event": "end", "description": None}
    assert measured(printed({"event": "start"}, one, end)) == {4096: 2.0}
    with pytest.raises(ValueError, match="did not come to its end"):
        measured(printed(one))
    wrong = {"event": "wrong", "bytes": 4096, "index": 7.0, "rank": 1, "got": 3.0, "expected": 4.0}
    with pytest.raises(WrongSum, match=r"element 7 of 4 KiB on rank 1 is 3.0, not 4.0"):
        measured(printed(one, wrong))
    failed = {"event": "failed", "bytes": 4096, "rank": 1, "text": "no peer"}
    with pytest.raises(ValueError, match="rank 1 failed at 4 KiB: no peer"):
        measured(printed(failed))


def bench(prefix: Path, folder: Path, chosen: tuple[Host, ...], ranks: int, gpus: int = 0) -> Bench:
    return Bench(
        prefix=prefix,
        options=(),
        hosts=chosen,
        has_racks=False,
        ranks=ranks,
        gpus=gpus,
        level=LEVELS["smoke"],
        tolerance=0.2,
        folder=folder,
        say=lambda text: None,
    )


@pytest.fixture
def told_by_program(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What the timing program prints, by tier, without hosts to run it on."""
    outputs: dict[str, str] = {}

    def start(self: Bench, name: str, program: list[str], result: CheckResult, *_: Any) -> str:
        result.commands.append(name)
        return outputs[name]

    monkeypatch.setattr(Bench, "start", start)
    monkeypatch.setattr(allreduce, "_program", lambda bench, sizes: ["program"])
    return outputs


def output(seconds: float) -> str:
    sizes = [1 << 16, 1 << 20, 1 << 24]
    events = [{"event": "size", "bytes": size, "seconds": [seconds * size / (1 << 24)]} for size in sizes]
    return printed(*events, {"event": "end"})


def links() -> list[CheckResult]:
    figures = [
        Figure("link.bandwidth", "host h0", 1e9, "B/s"),
        Figure("link.latency", "host h0", 1e-6, "s"),
        Figure("host.memory", "host h0", 20e9, "B/s"),
    ]
    return [CheckResult("links", "links", Status.PASSED, figures=figures)]


def test_what_crosses_the_network_is_held_against_the_links(
    env: Environment, tmp_path: Path, told_by_program: dict[str, str]
) -> None:
    wire = 1.5 * (1 << 24) / 1e9  # a ring of 4 hosts
    told_by_program["allreduce-between-hosts"] = output(3 * wire)
    result = allreduce.check(bench(env.prefix, tmp_path, hosts(0, 0, 0, 0), 1), links())
    small, middle, large = result.figures
    assert small.expected and small.expected.source == "ideal" and not small.low
    assert large.expected and large.expected.source == "prediction"
    assert middle.expected and middle.expected.source == "prediction"
    assert large.value == pytest.approx(1e9 / 3, rel=0.01) and large.scale["bytes"] == 1 << 24
    assert large.expected.value == pytest.approx(1e9, rel=0.1) and large.low
    (tier,) = result.facts["tiers"]
    assert tier["tier"] == "between hosts" and tier["seconds"] == pytest.approx(3 * wire)
    assert tier["expected"] == pytest.approx(wire, rel=0.1)
    told_by_program["allreduce-between-hosts"] = output(1.2 * wire)
    near = allreduce.check(bench(env.prefix, tmp_path, hosts(0, 0, 0, 0), 1), links())
    assert not any(one.low for one in near.figures)
    assert allreduce.check(bench(env.prefix, tmp_path, hosts(0, 0), 1), []).figures[0].expected is None


def test_a_wrong_sum_is_the_worst_finding(
    env: Environment, tmp_path: Path, told_by_program: dict[str, str]
) -> None:
    wrong = {"event": "wrong", "bytes": 4096, "index": 7.0, "rank": 1, "got": 3.0, "expected": 4.0}
    told_by_program |= {
        "allreduce-within-a-host": printed(wrong),
        "allreduce-between-hosts": output(0.1),
        "allreduce-all-ranks": printed(wrong),
    }
    result = allreduce.check(bench(env.prefix, tmp_path, hosts(0, 0), 2), [])
    assert [(one.kind, one.where, one.hosts) for one in result.findings] == [
        (Kind.WRONG_RESULT, "host h0", ("h0",)),
        (Kind.WRONG_RESULT, "cluster", ()),
    ]
    assert result.status is Status.FAILED and len(result.figures) == 3, "the other tier was measured"


def test_real_ranks_of_this_machine(env: Environment, tmp_path: Path) -> None:
    here = (Host("localhost", 2, 0, {}),)
    result = allreduce.check(bench(env.prefix, tmp_path, here, 2), [])
    assert result.status is Status.PASSED, result.reason
    assert [figure.scale["bytes"] for figure in result.figures] == [1 << 16, 1 << 20, 1 << 24]
    assert all(figure.value > 1e6 and figure.where == "within a host" for figure in result.figures)
    assert (tmp_path / "allreduce-within-a-host.log").read_text().count(MARK) == 5
    assert "ddlrun" in result.commands[0] and "-np 2" in result.commands[0]


def test_one_rank_has_nobody_to_reduce_with(env: Environment, tmp_path: Path) -> None:
    result = allreduce.check(bench(env.prefix, tmp_path, (Host("localhost", 1, 0, {}),), 1), [])
    assert (result.status, result.figures) == (Status.SKIPPED, [])
