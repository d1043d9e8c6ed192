"""Sweeps whose parameters Optuna chooses."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest
from sweep_process import PROGRAMS, Python, interrupt, results


@pytest.mark.parametrize("sampler", ["tpe", "object"])
def test_the_bottom_of_a_bowl_is_found(sampler: str, engines: Python, tmp_path: Path) -> None:
    """Later trials are far better than the first, random ones; a random sampler's would be alike. One
    trial at a time: else what the sampler knows, and so what it chooses, would depend on the machine.
    """
    words = [PROGRAMS / "quadratic.py", tmp_path / "s", sampler, "40", "1"]
    params, value, rows = engines(*words, limit=400).json
    assert value == pytest.approx((params["x"] - 2) ** 2 + (params["n"] - 3) ** 2 + (params["kind"] == "a"))
    losses = [row["loss"] for row in rows]
    assert len(losses) == 40 and value == min(losses)
    assert median(losses[-10:]) < median(losses[:8]) / 3, losses
    assert all(isinstance(row["n"], int) and row["kind"] in ("a", ["b", "c"]) for row in rows)


def test_a_sweep_goes_on(engines: Python, tmp_path: Path) -> None:
    """Optuna knows of the trials before, and of what ended without its knowledge; an interrupted trial keeps
    its parameters.
    """
    before = engines(PROGRAMS / "quadratic.py", tmp_path / "s", "tpe", "6").json[2]
    interrupt(tmp_path / "s", 2)
    interrupt(tmp_path / "s", 4, told=False)
    assert results(tmp_path / "s") == [0, 1, 3, 5]
    after = engines(PROGRAMS / "quadratic.py", tmp_path / "s", "tpe", "9").json[2]
    assert [row["x"] for row in after[:6]] == [row["x"] for row in before]
    assert after[4] == before[4] and after[2]["seconds"] != before[2]["seconds"]
    assert len({row["x"] for row in after}) == 9, "random numbers do not begin anew"
    look = (
        "import optuna, sys; storages = optuna.storages; "
        "storage = storages.JournalStorage(storages.journal.JournalFileBackend(sys.argv[1])); "
        "study = optuna.load_study(study_name='sweep', storage=storage); "
        "print([t.value for t in study.trials if t.state.name == 'COMPLETE'])"
    )
    told = engines("-c", look, tmp_path / "s/optuna.log").json
    assert told == [row["loss"] for row in after]


def test_a_pruner_stops_bad_trials(engines: Python, tmp_path: Path) -> None:
    _, value, rows = engines(PROGRAMS / "quadratic.py", tmp_path / "s", "pruned", "10").json
    states = [row["status"] for row in rows]
    assert value == 0.0
    # The median of at least five trials; it is between good and bad ones then.
    assert states[:5] == ["done"] * 5 and states[6] == states[8] == "pruned", states
    assert states[5] == states[7] == states[9] == "done", states


def test_tasks_that_start_at_once_ask_for_different_points(engines: Python, tmp_path: Path) -> None:
    """None of them sees that another has begun: each begins in a copy of the folder as it was before."""
    begin = (
        "import json, shutil, sys\n"
        "from ddl_sweep import uniform\n"
        "from ddl_sweep.definition import define\n"
        "from ddl_sweep.study import Study\n"
        "folder, space = sys.argv[1], {'x': uniform(-5, 5)}\n"
        "Study(folder, define(['true', '{x}'], space, sampler='tpe', trials=3, minimize='y'))\n"
        "copies = [shutil.copytree(folder, f'{folder}-{n}') for n in range(3)]\n"
        "tasks = [Study(copy).begin(n) for n, copy in enumerate(copies)]\n"
        "print(json.dumps([task['params']['x'] for task in tasks]))"
    )
    (tmp_path / "s").mkdir()
    points = engines("-c", begin, tmp_path / "s").json
    assert len(set(points)) == 3, points
