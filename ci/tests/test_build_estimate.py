"""How long the builds that are left will take."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wmlce.builder import estimate
from wmlce.util.layout import Layout

ROOT = Path(__file__).resolve().parents[2]
TIMES = {"a": 100.0, "b": 40.0, "c": 60.0, "d": 30.0}


def left(waiting: str, running: dict[str, float] | None = None, jobs: int = 2, **needs: str) -> float:
    needed = {name: set(others) for name, others in needs.items()}
    return estimate.seconds_left(list(waiting), running or {}, {}, needed, TIMES, jobs)


def test_what_runs_at_the_same_time_counts_once() -> None:
    assert left("abcd", jobs=1) == 230
    assert left("abcd") == 130  # a beside b and c, then d
    assert left("abcd", jobs=9) == 100


def test_what_waits_for_another_begins_after_it() -> None:
    assert left("ab", b="a") == 140
    assert left("abcd", b="a", d="b", c="z") == 170


def test_what_is_under_way_counts_with_its_rest() -> None:
    assert left("", {"a": 70}) == 30
    assert left("", {"a": 100}) == left("", {"a": 1000}) == 10
    assert left("b", {"a": 70, "c": 10}, b="a") == 70


def test_the_pace_of_this_run_is_taken_over() -> None:
    """Fast machines and slow ones: after some builds, what is left takes as much longer as they did."""
    slow = estimate.seconds_left(["a"], {}, {"b": 160, "c": 240}, {}, TIMES, 2)
    fast = estimate.seconds_left(["a"], {}, {"b": 10, "c": 15}, {}, TIMES, 2)
    assert 300 < slow < 400 and 25 < fast < 50
    # one small build does not turn minutes into hours
    assert estimate.seconds_left(["a"], {}, {"new": 60}, {}, {**TIMES, "new": 1}, 2) < 300


@given(
    waiting=st.lists(st.sampled_from("abcdefgh"), unique=True),
    running=st.dictionaries(st.sampled_from("ijk"), st.floats(0, 1e4), max_size=3),
    needs=st.dictionaries(st.sampled_from("abcdefgh"), st.sets(st.sampled_from("abcdefghijkz"))),
    jobs=st.integers(3, 9),
)
def test_any_graph_ends(
    waiting: list[str], running: dict[str, float], needs: dict[str, set[str]], jobs: int
) -> None:
    """Also with what waits for itself: it is never begun."""
    assert 0 <= estimate.seconds_left(waiting, running, {}, needs, TIMES, jobs) < 1e4


@pytest.mark.parametrize(
    "spoilt", ["", "{", "[]", '{"seconds": 3}', '{"seconds": {"a": "x"}}', '{"seconds": {"a": -1}}']
)
def test_times_of_this_machine_go_before_the_record(tmp_path: Path, spoilt: str) -> None:
    layout = Layout(root=ROOT, cache=tmp_path)
    record = estimate.recorded_times(layout)
    estimate.keep(layout, {"python": 12345.67, "own": 5}, print)
    estimate.keep(layout, {"own": 6}, print)
    assert estimate.recorded_times(layout) == {**record, "python": 12345.7, "own": 6}
    estimate.own_times(layout).write_text(spoilt)
    assert estimate.recorded_times(layout) == record
    estimate.keep(layout, {"own": 7}, print)
    assert estimate.recorded_times(layout)["own"] == 7


def test_times_that_cannot_be_written_fail_no_build(tmp_path: Path) -> None:
    (tmp_path / "build-times.json").mkdir()
    estimate.keep(Layout(root=ROOT, cache=tmp_path), {"own": 7}, print)


def test_the_record_has_what_quickstart_builds() -> None:
    """So that the first build of a new machine is estimated; the names are those of recipes."""
    record = json.loads(estimate.RECORD.read_text())
    assert record["machine"] and record["date"]
    assert {"python", "openmpi", "ddl", "powerai-pytorch", "powerai"} <= record["seconds"].keys()
    recipes = {path.parent.name for path in (ROOT / "recipes").glob("*/recipe.yaml")}
    assert len(record["seconds"].keys() & recipes) > 30
