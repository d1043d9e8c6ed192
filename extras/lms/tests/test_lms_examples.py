"""The examples, alone and on two ranks."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from lms_programs import ROOT

EXAMPLES = ROOT / "extras/lms/examples"


def test_torch_digits(programs: Any) -> None:
    """Moving changes no weight; it keeps the peak within the limit."""
    words = ("--epochs", "2", "--blocks", "4")
    without = programs.python(EXAMPLES / "torch_digits.py", *words).ok()
    ended = programs.python(EXAMPLES / "torch_digits.py", *words, "--lms-limit", "600KB").ok()
    assert ended.value("sum of weights") == without.value("sum of weights")
    peaks = re.findall(r"\d+", ended.value("peak of saved activations"))
    assert int(peaks[0]) <= 600_000 < int(peaks[1]), peaks
    assert re.findall(r"\d+", without.value("peak of saved activations")) == [peaks[1]] * 2
    assert without.value("moved to the host").startswith("0 B") and float(ended.value("images/sec")) > 0
    assert float(ended.value("accuracy")) == float(without.value("accuracy")) > 0.8


def test_torch_digits_on_two_ranks(programs: Any, prefix: Path) -> None:
    """Each moves its own; the weights are those of one rank with the whole batch."""
    program = str(EXAMPLES / "torch_digits.py")
    words = (program, "--epochs", "1", "--blocks", "4")
    alone = programs.run(str(prefix / "bin/python"), *words).ok()
    ddlrun = (str(prefix / "bin/ddlrun"), "-np", "2", "python")
    ended = programs.run(*ddlrun, *words, "--lms-limit", "300KB").ok()
    peaks = re.findall(r"\d+", ended.value("peak of saved activations"))
    assert int(peaks[0]) <= 300_000 < int(peaks[1]), peaks
    assert float(ended.value("sum of weights")) == pytest.approx(
        float(alone.value("sum of weights")), rel=1e-4
    )


def test_torch_transformer(programs: Any) -> None:
    """Small, on the processor: the same losses, and half of the saved tensors at most."""
    words = ["--device", "cpu", "--layers", "4", "--width", "64", "--length", "32", "--batch", "4"]
    words += ["--steps", "1", "--lms-min-size", "8KB", "--deterministic", "--json"]
    program = EXAMPLES / "torch_transformer.py"
    without = json.loads(programs.python(program, *words).ok().out)
    ended = json.loads(programs.python(program, *words, "--lms-limit", "1MB").ok().out)
    assert len(ended["losses"]) == 3 and ended["losses"] == without["losses"]
    assert ended["the same without LMS"] == without["peak of saved tensors"]
    assert ended["peak of saved tensors"] <= 1_000_000 < without["peak of saved tensors"] / 2
    assert ended["moved to the host in a step"] > 1_000_000 and without["moved to the host in a step"] == 0


def test_torch_transformer_refuses(programs: Any) -> None:
    """A part of a GPU's memory without a GPU, and no part of it."""
    for words in (["--device", "cpu", "--memory", "0.5"], ["--memory", "1.5"]):
        ended = programs.python(EXAMPLES / "torch_transformer.py", *words)
        assert ended.status == 2 and "more than 0 and at most 1" in ended.err, ended.err


def test_keras_digits(programs: Any) -> None:
    words = ("--epochs", "2", "--blocks", "2")
    without = programs.python(EXAMPLES / "keras_digits.py", *words).ok()
    ended = programs.python(EXAMPLES / "keras_digits.py", *words, "--lms", "offload").ok()
    assert without.value("moved to the host") == "0 bytes, 0 tensors"
    # 12 operations in 2 blocks, whose inputs are an image of 64 and two tensors of 128, in 15 steps of 100
    assert int(ended.value("moved to the host").split()[0]) > 2 * 15 * 100 * 64 * 4
    assert float(ended.value("sum of weights")) == pytest.approx(
        float(without.value("sum of weights")), rel=1e-4
    )
    assert float(ended.value("accuracy")) > 0.8 and float(ended.value("images/sec")) > 0


def test_keras_digits_on_two_ranks(programs: Any, prefix: Path) -> None:
    words = (str(EXAMPLES / "keras_digits.py"), "--epochs", "2", "--blocks", "2", "--lms", "recompute")
    ended = programs.run(str(prefix / "bin/ddlrun"), "-np", "2", "python", *words).ok()
    assert float(ended.value("accuracy")) > 0.8
