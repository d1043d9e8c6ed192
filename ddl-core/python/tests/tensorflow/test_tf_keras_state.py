"""State, figures and backups that all ranks share in Keras; the cases are in programs/keras_state.py."""

from __future__ import annotations

import pytest
from rank_launcher import Launcher, Run, case_names


@pytest.fixture(scope="module")
def run(launcher: Launcher) -> Run:
    """Two ranks."""
    return launcher.ranks(2, "keras_state", "OUT")


@pytest.mark.parametrize("case", case_names("keras_state"))
def test_case(run: Run, case: str) -> None:
    """One case, on every rank."""
    run.outcome(case, 2)
