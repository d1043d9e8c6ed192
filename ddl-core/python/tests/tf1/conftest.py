"""The fixtures of these tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from rank_processes import PREFIX, mpirun_words
from script_runs import Scripts


@pytest.fixture
def run_script(tmp_path: Path) -> Scripts:
    """Runs a script of TensorFlow 1 in a folder of its own."""
    return Scripts(tmp_path, DDL_TF1="1")


@pytest.fixture
def two_ranks() -> list[str]:
    """The words of mpirun."""
    return mpirun_words(PREFIX, 2)
