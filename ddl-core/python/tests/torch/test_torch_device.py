"""Which device ddl.torch.local_device gives to a rank; torch is made to see GPUs that are not there."""

from __future__ import annotations

from typing import Any

PROGRAM = """
import sys, types
import torch
import ddl.torch

def refused(kind, words):
    try:
        ddl.torch.local_device(kind)
    except ValueError as error:
        assert words in str(error), error
    else:
        raise AssertionError(kind)

assert ddl.torch.local_device() == ddl.torch.local_device("cpu") == torch.device("cpu")
refused("gpu", "sees no GPU")
refused("cuda", "pass 'cpu' or 'gpu'")
chosen = []
torch.cuda.device_count = lambda: 4
torch.cuda.set_device = chosen.append
device = ddl.torch.local_device("gpu")
assert device == ddl.torch.local_device() and chosen == [device] * 2
assert ddl.torch.local_device("cpu") == torch.device("cpu") and len(chosen) == 2
sys.stdout.write(f"passed {ddl.local_rank()} on {device}\\n")
"""


def test_ranks_take_gpus_in_turn(jobs: Any) -> None:
    job = jobs.mpirun(2, PROGRAM)
    assert (job.passed("0 on cuda:0"), job.passed("1 on cuda:1")) == (1, 1), job.out + job.err


def test_what_ddlrun_tells_comes_first(jobs: Any) -> None:
    """But not a GPU that the process does not see."""
    assert jobs.alone(PROGRAM, DDL_LOCAL_GPU="3").passed("0 on cuda:3") == 1
    assert jobs.alone(PROGRAM, DDL_LOCAL_GPU="4").passed("0 on cuda:0") == 1
