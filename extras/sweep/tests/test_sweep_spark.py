"""Sweeps by a real Spark: two executors on this machine, each a process of its own with one core."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sweep_process import (
    PROGRAMS,
    Python,
    alive,
    assert_like_a_plain_loop,
    kill,
    results,
    started,
    until,
)

MASTER = "local-cluster[2,1,1024]"


@pytest.fixture(scope="module")
def told(env: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What on_spark.py found out, in one session."""
    folder = tmp_path_factory.mktemp("spark")
    return Python(env, folder)(PROGRAMS / "on_spark.py", folder / "sweeps", MASTER, limit=400).json


def test_grid(told: Any) -> None:
    assert told["new"]
    assert_like_a_plain_loop(told["grid"])


def test_launch(told: Any) -> None:
    assert told["launch"] == ["xTrue", "yyTrue", "zzzTrue"]
    assert told["all"] == ["xTrue", "yTrue", "xxTrue", "yyTrue"]


def test_launch_with_runs_that_fail(told: Any) -> None:
    text, values = told["failed"]
    assert (
        text.startswith("2 of 4 runs failed") and "LookupError: no 1" in text and "LookupError: no 3" in text
    )
    assert values == [0, None, 2, None]
    assert ["lists of equal length" in text for text in told["wrong"]] == [True, True]


def test_a_worker_and_an_executor_that_are_killed(told: Any) -> None:
    """Their trials run again, and nothing else does."""
    rows, starts = told["lost"]
    assert [(row["status"], row.get("y")) for row in rows] == [("done", y) for y in (0.0, 1.0, 2.0)], rows
    assert starts == [1, 2, 2], rows


def test_barrier_with_ddlrun(told: Any) -> None:
    assert told["barrier"] == [[1, 2.0, 3.0], [10, 2.0, 30.0]]
    assert "Spark has 2 slots" in told["wide"]


def test_a_killed_driver_loses_nothing(engines: Python, tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    master = {"SPARK_MASTER": "local[2]"}
    driver = engines.start(PROGRAMS / "gated.py", folder, "spark", **master)
    until(lambda: results(folder) == [0, 1] and len(started(folder)) == 4)
    kill(driver)
    running = [pid for number, pid in started(folder) if number > 1]
    until(lambda: not any(map(alive, running)), limit=20)
    Path(f"{folder}.gate").touch()
    again = engines(PROGRAMS / "gated.py", folder, "spark", **master)
    assert again.out == "10.0 11.0 12.0 13.0 14.0\n", again.err
    assert sorted(number for number, _ in started(folder)) == [0, 1, 2, 2, 3, 3, 4]
