"""`-np MIN:MAX`: its reading, how many ranks fit, and when a job may grow."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ddlrun.command_line.parser import parse
from ddlrun.command_line.rank_range import RankRange
from ddlrun.errors import LaunchError
from ddlrun.hosts.host_list import Host, HostList
from ddlrun.placement.rank_range import fitting, grows
from ddlrun.run import growth
from ddlrun_program import Ddlrun


def _np(text: str) -> Any:
    return parse(["-np", text, "python"]).np


def test_reading() -> None:
    assert _np("2:4") == RankRange(2, 4) and str(_np("2:4")) == "2:4"
    assert _np("3:3") == RankRange(3, 3) and _np("4") == 4


@pytest.mark.parametrize(
    "text", ["4:2", "0:2", ":", "2:", ":2", "1:2:3", "a:b", "-1:2", "1:1234567890", "١:٢"]
)
def test_no_range(text: str) -> None:
    with pytest.raises(LaunchError, match=r"is no range of ranks.*write MIN:MAX"):
        _np(text)


def _hosts(*slots: int | None) -> HostList:
    return HostList(tuple(Host(f"h{i + 1}", count) for i, count in enumerate(slots)), "-H …")


@pytest.mark.parametrize(
    ("slots", "accelerators", "ranks"),
    [
        ((1, 1, 1), None, 3),
        ((1, 1), None, 2),
        ((4, 4), None, 4),
        ((None, None, None), None, 3),  # as without -np: one for each host
        ((None, None), 2, 4),
        ((None,), 3, 3),
    ],
)
def test_as_many_as_fit(slots: tuple[int | None, ...], accelerators: int | None, ranks: int) -> None:
    assert fitting(RankRange(2, 4), _hosts(*slots), {}, accelerators) == ranks
    assert fitting(7, _hosts(*slots), {}, accelerators) == 7  # a plain number is what it is


def test_fewer_than_the_least() -> None:
    with pytest.raises(LaunchError, match=r"DDL-2-4.*at least 3 ranks asked for, 2 slots.*-np to 2:4"):
        fitting(RankRange(3, 4), _hosts(1, 1), {}, None)
    with pytest.raises(LaunchError, match="DDL-2-4"):
        fitting(RankRange(1, 4), _hosts(), {}, None)


def test_growing() -> None:
    wanted = RankRange(2, 4)
    assert grows(wanted, 2, 3) and grows(wanted, 3, 9)
    assert not grows(wanted, 3, 3) and not grows(wanted, 4, 9) and not grows(wanted, 3, 2)


@pytest.mark.parametrize(
    ("change", "can"),
    [
        ({}, True),
        ({"np": None}, False),
        ({"np": RankRange(1, 2)}, False),  # has all it may have
        ({"missing": ()}, False),
        ({"explicit": False}, False),  # a scheduler's hosts
        ({"max_restarts": None}, False),
        ({"skip_checks": True}, False),
    ],
)
def test_who_looks_for_more_hosts(change: dict[str, Any], can: bool) -> None:
    said = {"np": RankRange(1, 3), "missing": (Host("h3"),), "explicit": True, "max_restarts": 1} | change
    hosts = SimpleNamespace(explicit_slots=said["explicit"])
    job: Any = SimpleNamespace(
        np=said["np"],
        placed=SimpleNamespace(slots=("a", "b")),
        survey=SimpleNamespace(missing=said["missing"], hosts=hosts),
    )
    options: Any = SimpleNamespace(
        max_restarts=said["max_restarts"], skip_checks=said.get("skip_checks", False)
    )
    assert growth.can_grow(job, options) is can


def test_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(growth.VARIABLE, raising=False)
    assert growth.interval() == 60
    monkeypatch.setenv(growth.VARIABLE, "0.5")
    assert growth.interval() == 0.5
    for text in ("0", "x", "nan", "1e9"):
        monkeypatch.setenv(growth.VARIABLE, text)
        with pytest.raises(LaunchError, match=growth.VARIABLE):
            growth.interval()


def test_a_new_checkpoint_is_seen(tmp_path: Path) -> None:
    assert growth.newest(None) is None
    before = growth.newest(tmp_path)
    (tmp_path / "inner").mkdir()
    file = tmp_path / "inner/latest"
    file.write_text("1")
    first = growth.newest(tmp_path)
    assert first != before and growth.newest(tmp_path) == first
    os.utime(file, ns=(1, first[0] + 1) if first else None)
    assert growth.newest(tmp_path) != first


def test_a_plan(ddlrun: Ddlrun) -> None:
    """A host that is not there is left out at the start."""
    run = ddlrun("-np", "1:3", "-H", "localhost:2,no-such-host.invalid", "-json", "true")
    assert run.code == 0, run.err
    plan = json.loads(run.out)
    assert plan["np"] == {"least": 1, "most": 3} and len(plan["ranks"]) == 2
    assert "[WARN DDL-2-4] without no-such-host.invalid: [ERROR DDL-2-6]" in run.err
    assert "-np 1:3: 2 ranks fit" in run.err
    run = ddlrun("-np", "3:4", "-H", "localhost:2,no-such-host.invalid", "-dry-run", "true")
    assert run.code == 1 and "[ERROR DDL-2-4] at least 3 ranks asked for, 2 slots on the 1 hosts" in run.err
    assert "lower its minimum, or repair these: [ERROR DDL-2-6]" in run.err


def test_it_runs(ddlrun: Ddlrun) -> None:
    run = ddlrun("-np", "1:2", "-H", "localhost:5", "sh", "-c", "echo $WORLD_SIZE")
    assert run.code == 0 and run.out.split() == ["2", "2"], run.err
