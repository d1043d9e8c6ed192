"""Training on the backend ddl equals training in one process with the same global batch."""

from __future__ import annotations

from typing import Any

import pytest

CASES = (
    *("ddp", "ddp_hooks", "ddp_accumulates", "ddp_sparse"),
    *("zero", "fsdp1", "fsdp2", "by_hand", "other_models"),
)

DRIFT = (
    *("no_average_at_all", "weight_of_one_rank", "settings_of_one_rank", "checkpoint_of_one_rank"),
    *("two_optimizers_and_types", "nothing_to_find", "uneven_inputs", "nan_weights", "declared_to_differ"),
    *("trained_alone_for_a_while", "one_rank_tries_an_update"),
    *("learning_rate_of_a_group", "other_optimizer_of_one_rank", "one_rank_evaluates"),
)


def test_two_ranks_of_torchrun(jobs: Any) -> None:
    job = jobs.torchrun(2, "training.py")
    assert job.status == 0, job.err
    assert {case: job.passed(case) for case in CASES} == dict.fromkeys(CASES, 2)


def test_ranks_that_drift_apart(jobs: Any) -> None:
    """Noticed under DistributedDataParallel; what differs by design is left alone."""
    job = jobs.mpirun(2, "drift.py")
    assert job.status == 0, job.err
    assert {case: job.passed(case) for case in DRIFT} == dict.fromkeys(DRIFT, 2)


def test_a_step_of_one_rank_is_missing(jobs: Any) -> None:
    """The error says that one of the different calls is a comparison, and what its lack means."""
    job = jobs.mpirun(2, "drift.py", "one_rank_skips_a_step")
    assert job.passed("one_rank_skips_a_step") == 2, job.err


def test_four_ranks_on_two_hosts(jobs: Any) -> None:
    """FSDP2 also shards in pairs that are replicas of each other."""
    some = ("ddp", "zero", "fsdp1", "fsdp2")
    job = jobs.mpirun(4, "training.py", *some, DDL_EMULATE_HOSTS="2,2")
    assert job.status == 0, job.err
    assert {case: job.passed(case) for case in some} == dict.fromkeys(some, 4)


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.long), 2])
def test_ddlrun(jobs: Any, ranks: int) -> None:
    job = jobs.ddlrun(ranks, "training.py", "ddp", "by_hand")
    assert job.status == 0, job.out + job.err
    assert job.passed("ddp") == job.passed("by_hand") == ranks
