"""Init, Bcast, AllReduce and AllReduceN on real ranks; the cases are in programs/operators.py."""

from __future__ import annotations

import pytest
from rank_launcher import Launcher, Run, case_names


@pytest.fixture(scope="module", params=[pytest.param(2, marks=pytest.mark.long), 3])
def run(launcher: Launcher, request: pytest.FixtureRequest) -> tuple[int, Run]:
    """Three ranks: a number that does not divide evenly, and more than this machine may have cores."""
    return request.param, launcher.ranks(request.param, "operators", "OUT")


@pytest.mark.parametrize("case", case_names("operators"))
def test_case(run: tuple[int, Run], case: str) -> None:
    """One case, on every rank."""
    ranks, finished = run
    finished.outcome(case, ranks)


def test_only_rank(launcher: Launcher) -> None:
    """The same cases without a launcher: the world is one rank, and MPI is not touched."""
    run = launcher.alone("operators", "OUT", "alone")
    assert run.status == 0, run.output
    for case in case_names("operators"):
        run.outcome(case, 1)


def test_the_operator_starts_ddl(launcher: Launcher) -> None:
    """And DDL is finalised, so that the job does not end as a failure."""
    run = launcher.ranks(2, "operator_init")
    assert run.status == 0 and run.output.count("initialised") == 2, run.output
    assert "ERROR" not in run.output, run.output
