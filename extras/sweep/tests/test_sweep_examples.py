"""The examples learn, by every engine that needs no cluster."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rank_processes import ROOT
from sweep_process import Python

EXAMPLES = ROOT / "extras/sweep/examples"


def assert_learned(out: str, least: float) -> None:
    accuracy = re.search(r"^accuracy: (0\.\d+|1\.0+)$", out, re.MULTILINE)
    rate = re.search(r"^trials/min: (\d+\.\d+)$", out, re.MULTILINE)
    assert accuracy and float(accuracy[1]) > least and rate and float(rate[1]) > 0, out


@pytest.mark.parametrize(
    "engine",
    [
        "local",
        pytest.param("spark", marks=pytest.mark.long),
        pytest.param("dask", marks=pytest.mark.long),
    ],
)
def test_digits(engine: str, engines: Python, tmp_path: Path) -> None:
    words = ("--engine", engine, "--sampler", "random", "--trials", "4", "--epochs", "4", "--at-once", "2")
    run = engines(EXAMPLES / "digits.py", *words, limit=240)
    assert run.code == 0, run.out + run.err
    assert_learned(run.out, 0.8)


def test_launch(engines: Python, tmp_path: Path) -> None:
    run = engines(EXAMPLES / "launch_digits.py", limit=240)
    assert run.code == 0, run.out + run.err
    runs = re.findall(r"^\{'learning_rate': ([\d.]+), 'dropout': ([\d.]+)\} 0\.\d+$", run.out, re.MULTILINE)
    pairs = [("0.001", "0.45"), ("0.0005", "0.7")]
    combinations = [(rate, dropout) for rate in ("0.001", "0.0005") for dropout in ("0.45", "0.7")]
    assert runs == pairs + combinations, run.out
    assert_learned(run.out, 0.7)


@pytest.mark.long
@pytest.mark.parametrize("engine", ["local", "barrier"])
def test_trials_of_two_ranks(engine: str, engines: Python, tmp_path: Path) -> None:
    words = ("--engine", engine, "--epochs", "2")
    run = engines(EXAMPLES / "digits_ranks.py", *words, limit=300, SPARK_MASTER="local[2]")
    assert run.code == 0, run.out + run.err
    assert_learned(run.out, 0.7)
