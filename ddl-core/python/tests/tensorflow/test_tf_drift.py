"""Ranks that drift apart are noticed in TensorFlow and both Keras; the cases are in programs/drift.py."""

from __future__ import annotations

import pytest
from rank_launcher import Launcher, Run, case_names


@pytest.fixture(scope="module")
def run(launcher: Launcher) -> Run:
    """Two ranks."""
    return launcher.ranks(2, "drift", "OUT")


@pytest.mark.parametrize("case", case_names("drift"))
def test_case(run: Run, case: str) -> None:
    """One case, on every rank."""
    run.outcome(case, 2)


def test_switched_off(launcher: Launcher) -> None:
    """Nothing is compared then, and it is said once."""
    run = launcher.ranks(2, "drift", "OUT", DDL_DRIFT_CHECK="0")
    assert "accepted, but" in run.output
    assert run.output.count("[INFO] DDL_DRIFT_CHECK=0") == 1, run.output


def test_switch_is_checked(launcher: Launcher) -> None:
    run = launcher.ranks(2, "drift", "OUT", DDL_DRIFT_CHECK="no")
    assert "DDL_DRIFT_CHECK is 'no'; it must be 0 or 1" in run.output
