"""Chainer and ChainerMN on DDL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rank_processes import ALLOW_ROOT, QUICK, finish, mpirun_words, own_environment, prefix_with, start

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture(scope="module")
def prefix() -> Path:
    packages = ("ddl-chainer", "scikit-learn")
    return prefix_with("lib/python3*/site-packages/ddl_chainer/__init__.py", "ddl-chainer", *packages)


def run(prefix: Path, ranks: int, *words: str, **more: str) -> str:
    command = [str(prefix / "bin/python"), *words]
    if ranks:
        command = [*mpirun_words(prefix, ranks), *command]
    environment = {**own_environment(), **ALLOW_ROOT, **QUICK, "DDL_OPTIONS": "-timeout 60"}
    environment |= {"PYTHONWARNINGS": "ignore", **more}
    child = start(command, environment)
    out, err = finish(child, 180)
    assert child.returncode == 0, out + err
    return out


def test_ranks_equal_one_with_the_whole_batch(prefix: Path, tmp_path: Path) -> None:
    program = str(PROGRAMS / "training.py")
    run(prefix, 0, program, str(tmp_path / "alone.npy"), "alone", DDL_AUTO_INIT="0")
    run(prefix, 3, program, str(tmp_path / "ddl.npy"), "ddl", DDL_EMULATE_HOSTS="2,1")
    alone: Any = np.load(tmp_path / "alone.npy")
    together: Any = np.load(tmp_path / "ddl.npy")
    np.testing.assert_allclose(together, alone, rtol=1e-9, atol=1e-12)
    assert np.abs(alone).max() > 0.1


@pytest.mark.long
def test_communicator(prefix: Path) -> None:
    out = run(prefix, 4, str(PROGRAMS / "communicator.py"), DDL_EMULATE_HOSTS="2,2")
    cases = ["means", "means_over_ranks_that_have_none", "same_start", "batch_statistics", "data_sets"]
    for case in [*cases, "some_ranks", "one world"]:
        assert out.splitlines().count(f"passed {case}") == 4, (case, out)
