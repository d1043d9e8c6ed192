"""Disjoint data, learning rate, accumulation, checkpoints; the cases are in programs/helpers.py."""

from __future__ import annotations

import pytest
from rank_launcher import Launcher, Run, case_names


@pytest.fixture(scope="module")
def run(launcher: Launcher) -> Run:
    """Two ranks. The examples use the same without a launcher. Comparisons of weights would be counted as
    calls.
    """
    return launcher.ranks(2, "helpers", "OUT", DDL_DRIFT_CHECK="0")


@pytest.mark.parametrize("case", case_names("helpers"))
def test_case(run: Run, case: str) -> None:
    """One case, on every rank."""
    run.outcome(case, 2)
