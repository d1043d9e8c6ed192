"""Sweeps by processes of this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

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


def test_importing_loads_no_engine_and_no_framework(python: Python) -> None:
    heavy = ["pyspark", "distributed", "dask", "optuna", "torch", "tensorflow", "mpi4py"]
    code = f"import sys; import ddl_sweep as sweep; print([m for m in {heavy} if m in sys.modules])"
    assert python("-c", code).out == "[]\n"
    assert python("-c", "import ddl; print(ddl.sweep.grid({'a': [1, 2], 'b': [3]}))").out == (
        "{'a': [1, 2], 'b': [3, 3]}\n"
    )


def test_grid(python: Python, tmp_path: Path) -> None:
    assert_like_a_plain_loop(python(PROGRAMS / "grid_by.py", "local", tmp_path / "grid").json)


def test_random_parameters_follow_from_seed_and_number(python: Python, tmp_path: Path) -> None:
    def params(name: str, seed: int, trials: int, at_once: int) -> list[dict[str, object]]:
        words = (tmp_path / name, str(seed), str(trials), str(at_once))
        return python(PROGRAMS / "random_params.py", *words).json  # type: ignore[no-any-return]

    first = params("a", 1, 12, 1)
    assert params("b", 1, 5, 3) == first[:5]
    assert params("b", 1, 12, 3) == first, "the sweep goes on with more trials"
    assert params("c", 2, 2, 2) != first[:2]
    assert all(-1 <= p["x"] <= 1 and 1e-6 <= p["rate"] <= 1 for p in first)  # type: ignore[operator]
    assert {p["n"] for p in first} == {1, 2, 3}
    assert sum(p["rate"] < 1e-3 for p in first) in range(2, 11)  # type: ignore[operator]
    assert {json.dumps(p["kind"]) for p in first} == {'"a"', "[1, 2]"}


def test_trials_that_fail(python: Python, tmp_path: Path) -> None:
    rows = {row["what"]: row for row in python(PROGRAMS / "misbehaving.py", tmp_path / "m").json}
    assert {what for what, row in rows.items() if row["status"] == "done"} == {"works", "fails once"}
    assert {what for what, row in rows.items() if row["attempts"] == 1} == {"works"}
    said = {
        "raises": "LookupError: no such thing",
        "exits": "SystemExit: 3",
        "nan": "nan is not finite",
        "returns nothing": "None is no number",
        "is killed": "the process of the trial was killed by signal 9\nnow is killed",
        "hangs": "not ended within 3 s",
    }
    for what, text in said.items():
        assert text in rows[what]["error"], rows[what]
    assert "in train" in rows["raises"]["error"], "the traceback leads to the line"
    [child] = (tmp_path / "m").glob("trials/*/files/child")
    assert not alive(int(child.read_text())), "also what left the trial's session is ended"
    before = python(PROGRAMS / "misbehaving.py", tmp_path / "m").json
    assert {row["what"]: row for row in before} == rows, "failed trials have ended"


def test_all_trials_failing_is_an_error(python: Python, tmp_path: Path) -> None:
    line = (
        "run",
        tmp_path / "f",
        "--param",
        "x=1,2",
        "--",
        sys.executable,
        "-c",
        "raise SystemExit('{x} is bad')",
    )
    run = python.sweep(*line)
    assert run.code == 1 and "none of 2 trials is done" in run.err and " is bad" in run.err
    table = python.sweep("table", tmp_path / "f")
    assert "ended with code 1: 2 is bad" in table.out


def test_a_killed_driver_loses_nothing(python: Python, tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    driver = python.start(PROGRAMS / "gated.py", folder, "local")
    until(lambda: results(folder) == [0, 1] and len(started(folder)) == 4)
    kill(driver)
    running = [pid for number, pid in started(folder) if number > 1]
    until(lambda: not any(map(alive, running)), limit=15)
    Path(f"{folder}.gate").touch()
    again = python(PROGRAMS / "gated.py", folder, "local")
    assert again.out == "10.0 11.0 12.0 13.0 14.0\n", again.err
    assert "2 of 5 trials have ended before" in again.err
    numbers = sorted(number for number, _ in started(folder))
    assert numbers == [0, 1, 2, 2, 3, 3, 4]
    third = python(PROGRAMS / "gated.py", folder, "local")
    assert third.out == again.out and len(started(folder)) == 7


def test_a_driver_that_is_told_to_end(python: Python, tmp_path: Path) -> None:
    """As a scheduler does it: the trials end, and have no result."""
    mark = tmp_path / "mark"
    program = [
        sys.executable,
        "-c",
        f"import os, time; print(os.getpid(), file=open({str(mark)!r}, 'w', 1)); time.sleep(600)",
    ]
    child = python.start("-m", "ddl_sweep", "run", tmp_path / "s", "--param", "x=1", "--", *program, "{x}")
    pid = int(until(lambda: mark.exists() and mark.read_text()))
    child.terminate()
    _, err = child.communicate(timeout=30)
    assert child.returncode == 143 and "Traceback" not in err, err
    assert not alive(pid) and results(tmp_path / "s") == []


def test_failed_trials_run_again_when_asked(python: Python, tmp_path: Path) -> None:
    mended = tmp_path / "mended"
    code = f"import os; print('value:', 1 / ({{x}} or os.path.exists({str(mended)!r})))"
    words = ["--param", "x=0,2", "--", sys.executable, "-c", code]
    python.sweep("run", tmp_path / "s", *words)
    mended.touch()
    python.sweep("run", tmp_path / "s", *words)
    assert [row["status"] for row in python.sweep("table", tmp_path / "s", "--json").json] == [
        "failed",
        "done",
    ]
    python.sweep("run", tmp_path / "s", "--retry-failed", *words)
    rows = python.sweep("table", tmp_path / "s", "--json").json
    assert [(row["status"], row["value"]) for row in rows] == [("done", 1.0), ("done", 0.5)]


def test_progress_on_a_terminal(python: Python, tmp_path: Path) -> None:
    words = ["run", str(tmp_path / "s"), "--param", "x=1,2", "--", "echo", "value: {x}"]
    line = [str(python.prefix / "bin/python"), "-m", "ddl_sweep", *words]
    terminal, inside = os.openpty()
    run = subprocess.run(
        line, env=python.environment(TERM="xterm"), stderr=inside, stdout=subprocess.PIPE, timeout=60
    )
    os.close(inside)
    shown = os.read(terminal, 1 << 16).decode()
    os.close(terminal)
    assert run.returncode == 0 and "trials 2/2" in shown and "best value 2 of trial 1" in shown, shown


def test_two_drivers_in_one_folder(python: Python, tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    driver = python.start(PROGRAMS / "gated.py", folder, "local")
    until(lambda: results(folder) == [0, 1])
    second = python(PROGRAMS / "gated.py", folder, "local")
    driver.terminate()
    driver.communicate(timeout=20)
    assert second.code == 1 and "another process runs the sweep in" in second.err


def test_a_file_system_without_locks(python: Python, tmp_path: Path) -> None:
    """Such as Lustre mounted without flock: a library refuses the call."""
    library = tmp_path / "flock.so"
    source = "#include <errno.h>\nint flock(int f, int o) { (void)f; (void)o; errno = ENOSYS; return -1; }\n"
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    subprocess.run(command, input=source, text=True, check=True, timeout=60)
    words = ("run", tmp_path / "s", "--param", "x=1", "--", "echo", "value: {x}")
    run = python.sweep(*words, LD_PRELOAD=str(library))
    assert run.code == 1 and "driver.lock cannot be locked" in run.err and "-o flock" in run.err, run.err
    assert "Traceback" not in run.err


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--param", "x=1,3"], 'its space is {"x": [1, 2]}, now {"x": [1, 3]}'),
        (["--param", "x=1,2", "--seed", "5"], "its seed is 0, now 5"),
        (["--param", "x=1,2", "--sampler", "random", "--trials", "2"], 'its sampler is "grid", now "random"'),
        (["--param", "x=1,2", "--minimize", "value"], 'its goal is "maximize", now "minimize"'),
    ],
)
def test_another_sweep_in_the_folder_is_refused(
    words: list[str], named: str, python: Python, tmp_path: Path
) -> None:
    program = ["--", sys.executable, "-c", "print('value:', {x})"]
    first = python.sweep("run", tmp_path / "s", "--param", "x=1,2", *program)
    assert first.code == 0, first.err
    other = python.sweep("run", tmp_path / "s", *words, *program)
    assert other.code == 1 and named in other.err, other.err


def test_ddlrun_in_a_trial(python: Python, tmp_path: Path) -> None:
    """The trial is a job of two ranks, whose sum is what one process would not give."""
    run = python(PROGRAMS / "ranks_in_trials.py", tmp_path / "sweep", "local")
    assert run.json == [[1, 2.0, 3.0], [10, 2.0, 30.0]], run.err
