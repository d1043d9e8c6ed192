"""`python -m ddl_sweep`: sweeps of programs, and what is wrong on a command line."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import pytest
from sweep_process import Python

PROGRAM = """
import sys
rate, width = float(sys.argv[1]), int(sys.argv[2])
print("accuracy: 0.5")
print("loss:", rate)
print(f"accuracy: {width / (1 + rate)}")
"""


def test_a_program(python: Python, tmp_path: Path) -> None:
    program = ["--", sys.executable, "-c", PROGRAM, "{rate}", "{width}"]
    words = ["--param", "rate=0,1", "--param", "width=1,4,2", "--metric", "accuracy", "--quiet"]
    run = python.sweep("run", tmp_path / "s", *words, *program)
    assert run.code == 0, run.err
    assert run.out == "best trial: 1\n  rate = 0\n  width = 4\naccuracy: 4\nloss: 0\n" and run.err == ""

    expected = [[rate, width, width / (1 + rate)] for rate in (0, 1) for width in (1, 4, 2)]
    rows = python.sweep("table", tmp_path / "s", "--json").json
    assert [[row["rate"], row["width"], row["accuracy"]] for row in rows] == expected
    read = csv.DictReader(io.StringIO(python.sweep("table", tmp_path / "s", "--csv").out))
    assert [[float(row[name]) for name in ("rate", "width", "accuracy")] for row in read] == expected
    lines = python.sweep("table", tmp_path / "s").out.splitlines()
    assert lines[0].split()[:5] == ["trial", "status", "rate", "width", "accuracy"]
    assert [line.split()[:3] for line in lines if line.startswith("*")] == [["*", "1", "done"]]
    best = python.sweep("best", tmp_path / "s", "--json").json
    assert (best["number"], best["value"], best["params"]) == (1, 4.0, {"rate": 0, "width": 4})
    status = python.sweep("status", tmp_path / "s")
    assert status.out == "6 trials: 6 done, 0 pruned, 0 failed, 0 begun, 0 left\n"


def test_minimize_and_a_file_of_parameters(python: Python, tmp_path: Path) -> None:
    (tmp_path / "space.toml").write_text("rate = [3, 1, 2]\nwidth = {uniform = [1, 9], integer = true}\n")
    program = ["--", sys.executable, "-c", PROGRAM, "{rate}", "{width}"]
    words = ["--space", tmp_path / "space.toml", "--trials", "9", "--minimize", "loss", "--seed", "3"]
    run = python.sweep("run", tmp_path / "s", *words, "--json", *program)
    assert run.json["params"]["rate"] == 1
    assert {row["status"] for row in python.sweep("table", tmp_path / "s", "--json").json} == {"done"}
    again = python.sweep("run", tmp_path / "s", "--trials", "11", "--json")
    assert again.json["value"] == 1
    assert len(python.sweep("table", tmp_path / "s", "--json").json) == 11


def test_values_stay_in_their_word(python: Python, tmp_path: Path) -> None:
    """No shell sees them, and a value that looks like a field is none."""
    values = ["$(touch bad); `id`", "{other}", "a 'b' \"c\" *"]
    (tmp_path / "space.json").write_text(json.dumps({"text": values, "other": [1]}))
    check = (
        "import json, sys; params = json.loads(sys.argv[1]); "
        "assert sys.argv[2:] == ['-' + params['text'], '{unknown}', '1'], sys.argv; print('value: 1')"
    )
    program = ["--", sys.executable, "-c", check, "{params}", "-{text}", "{unknown}", "{other}"]
    run = python.sweep("run", tmp_path / "s", "--space", tmp_path / "space.json", *program)
    assert run.code == 0, run.err
    rows = python.sweep("table", tmp_path / "s", "--json").json
    assert [row["text"] for row in rows if row["status"] == "done"] == values, rows
    assert not list(tmp_path.glob("**/bad"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--param", "x"], "write NAME=VALUE"),
        (["--param", "x=5..1"], "the first must be smaller"),
        (["--param", "x=a..b"], "a range is LOW..HIGH of numbers"),
        (["--param", "x=0..1:log"], "logarithms need numbers above 0"),
        (["--param", "x=1", "--param", "x=2"], "the parameter x is given twice"),
        (["--param", "folder=1"], "'folder' cannot be the name of a parameter"),
        (["--param", "x=1,2", "--param", "y=1"], "do not use y"),
        (["--param", "x=1..2"], "how many trials?"),
        (["--param", "x=1..2", "--sampler", "grid"], "parameter x is a range"),
        (["--param", "x=1", "--at-once", "0"], "at_once=0"),
        (["--param", "x=1", "--limit", "0"], "limit_seconds=0"),
        (["--param", "x=1", "--sbatch=--time=1"], "add --engine slurm"),
        (["--space", "missing.toml"], "No such file"),
        ([], "the space is empty"),
    ],
)
def test_wrong_command_lines(words: list[str], said: str, python: Python, tmp_path: Path) -> None:
    run = python.sweep("run", tmp_path / "s", *words, "--", "echo", "value: {x}")
    assert run.code == 1 and said in run.err and run.err.count("\n") == 1, run.err
    assert not (tmp_path / "s" / "trials").exists()


def test_there_is_no_sweep(python: Python, tmp_path: Path) -> None:
    for command in ("run", "status", "best", "table"):
        run = python.sweep(command, tmp_path / "nothing")
        assert run.code == 1 and "there is no optuna.log" in run.err, run.err
    assert python.sweep("best", "--nonsense").code == 2


def test_help_teaches(python: Python) -> None:
    told = python.sweep("--help").out
    assert "accuracy: 0.97" in told and "-- python train.py --rate {rate}" in told
    assert "rate=1e-4..1e-1:log" in python.sweep("run", "--help").out


def test_what_a_package_is_missing_for(python: Python, tmp_path: Path) -> None:
    """optuna cannot be found: its finder is shadowed by one that knows of none."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Without:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'optuna':\n"
        "            raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, Without())\n"
    )
    words = ["--param", "x=1..2", "--trials", "2", "--sampler", "tpe", "--", "echo", "value: {x}"]
    run = python.sweep("run", tmp_path / "s", *words, PYTHONPATH=str(tmp_path))
    assert run.code == 1 and "needs the package optuna" in run.err, run.err
