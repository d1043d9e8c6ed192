"""A rank whose program raises while calls of its process groups are under way waits for nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import os, sys, time
import torch, torch.distributed as dist

kind, folder = sys.argv[1], sys.argv[2]
name = os.path.join(folder, "pid")
dist.init_process_group("ddl")
groups = [None, dist.new_group([0, 1]), dist.new_group([1, 0])]
tensors = [torch.ones(1000) for _ in groups]
for tensor, group in zip(tensors, groups):
    dist.all_reduce(tensor, group=group)
if dist.get_rank() == 0:
    with open(name + ".new", "w") as file:
        file.write(str(os.getpid()))
    os.rename(name + ".new", name)
    if kind == "message":
        works = [dist.isend(torch.ones(10_000_000), 1)]
    else:
        works = [dist.all_reduce(t, group=g, async_op=True) for t, g in zip(tensors, groups)]
    raise MemoryError("the culprit's own error")

def lives():
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
while not os.path.exists(name):
    time.sleep(0.01)
pid = int(open(name).read())
limit = time.monotonic() + 60
while lives() and time.monotonic() < limit:
    time.sleep(0.01)
with open(os.path.join(folder, "said"), "w") as file:
    file.write("lives" if lives() else "ended")
"""


@pytest.mark.parametrize("kind", ["calls", "message"])
def test_rank_that_raises_in_a_call(jobs: Any, tmp_path: Path, kind: str) -> None:
    """The other one makes no call meanwhile."""
    job = jobs.mpirun(2, PROGRAM, kind, str(tmp_path), exit_together=True)
    assert job.status == 1, job.out + job.err
    assert "the culprit's own error" in job.err
    assert (tmp_path / "said").read_text() == "ended", job.out + job.err
