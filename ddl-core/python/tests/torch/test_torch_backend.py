"""DDL as a backend of torch.distributed."""

from __future__ import annotations

from typing import Any

import pytest

COLLECTIVES = (
    *("all_reduce", "sparse", "moved", "all_to_all", "reduced_to_some"),
    *("messages", "asynchronous", "groups", "objects", "inference", "what_it_cannot"),
)
FAILURES = (
    "in_a_group",
    "blocks_differ",
    "messages_differ",
    "no_message",
    "own_time_limits",
    "late",
    "begun_again",
)


def test_collectives_on_two_hosts(jobs: Any) -> None:
    """Three ranks, two of them on one emulated host, so that shared memory and messages are both used."""
    job = jobs.mpirun(3, "collectives.py", DDL_EMULATE_HOSTS="2,1")
    assert job.status == 0, job.err
    assert {case: job.passed(case) for case in COLLECTIVES} == dict.fromkeys(COLLECTIVES, 3)


@pytest.mark.long
def test_one_rank(jobs: Any) -> None:
    """Without a launcher."""
    variables = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    job = jobs.alone("collectives.py", **variables)
    assert job.status == 0, job.err
    assert job.passed("moved") == 1 and job.passed("what_it_cannot") == 1


def test_failures_are_loud(jobs: Any) -> None:
    job = jobs.mpirun(2, "failures.py")
    assert {case: job.passed(case) for case in FAILURES} == dict.fromkeys(FAILURES, 2), job.err
    assert job.status == 0, job.err


def test_a_forked_rank_is_refused_and_ends(jobs: Any) -> None:
    job = jobs.mpirun(2, "forked.py")
    assert job.passed("forked") == 2, job.err


def test_importing_torch_starts_nothing(jobs: Any) -> None:
    """Under a launcher, too; the ranks' numbers are in the environment as torchrun would have them."""
    program = (
        "import os, sys, torch\n"
        "assert 'ddl' not in sys.modules and 'mpi4py' not in sys.modules\n"
        "names = ('RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'LOCAL_WORLD_SIZE')\n"
        "sys.stdout.write('passed ' + '/'.join(os.environ.get(name, '-') for name in names) + '\\n')\n"
    )
    job = jobs.mpirun(2, program)
    assert (job.passed("0/2/0/2"), job.passed("1/2/1/2")) == (1, 1), job.err
    assert jobs.alone(program).passed("-/-/-/-") == 1


def test_ranks_that_ddl_does_not_know_are_refused(jobs: Any) -> None:
    program = (
        "import sys, tempfile, torch.distributed as dist\n"
        "place = f'file://{tempfile.gettempdir()}/store'\n"
        "try:\n"
        "    dist.init_process_group('ddl', init_method=place, rank=0, world_size=2)\n"
        "except RuntimeError as error:\n"
        "    assert 'torch says rank 0 of 2, but DDL rank 0 of 1' in str(error), error\n"
        "    sys.stdout.write('passed refusal\\n')\n"
    )
    job = jobs.alone(program)
    assert job.passed("refusal") == 1, job.err
