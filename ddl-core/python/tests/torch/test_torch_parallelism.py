"""What torch.distributed offers beside data parallelism runs on ddl, and equals one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

CASES = (
    *("compiled_ddp", "compiled_collectives", "dtensors", "tensor_parallel", "two_dimensions", "pipeline"),
    *("local_sgd", "joined", "hooks", "power_sgd", "callbacks", "meshes"),
)


def test_four_ranks_on_two_hosts(jobs: Any) -> None:
    job = jobs.mpirun(4, "parallelism.py", DDL_EMULATE_HOSTS="2,2", OMP_NUM_THREADS="1")
    assert job.status == 0, job.err
    assert {case: job.passed(case) for case in CASES} == dict.fromkeys(CASES, 4)


@pytest.mark.parametrize("how", ["saves", "saves_asynchronously"])
def test_a_checkpoint_is_loaded_by_another_number_of_ranks(jobs: Any, tmp_path: Path, how: str) -> None:
    folder = str(tmp_path / "checkpoint")
    for ranks, case in ((3, how), (2, "loads")):
        job = jobs.mpirun(ranks, "parallelism.py", folder, case)
        assert job.status == 0 and job.passed(case) == ranks, job.out + job.err
