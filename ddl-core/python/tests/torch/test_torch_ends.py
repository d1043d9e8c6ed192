"""A rank whose program raises while calls of its process groups are under way waits for nobody."""

from __future__ import annotations

import json
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
    except OSError:  # gone, perhaps since it was opened
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


EARLY = """
import sys
import torch, torch.distributed as dist

kind = sys.argv[1]
dist.init_process_group("ddl")
ranks = [[1, 0], [2, 1, 0]]
groups = [dist.new_group(of) for of in ranks]
tensor = torch.ones(1000)
for group, of in zip(groups, ranks):
    if dist.get_rank() in of:
        dist.all_reduce(tensor, group=group)
if dist.get_rank() == 1:
    sys.exit(0)
try:
    if kind == "call":
        dist.all_reduce(tensor, group=groups[1])
    else:
        dist.new_group([0, 1, 2])
except Exception as error:
    print("error", dist.get_rank(), " ".join(str(error).split()), flush=True)
    sys.exit(3)
print("no error", dist.get_rank())
"""


OTHER_CALL = """
import datetime, sys
import ddl, numpy as np
import torch, torch.distributed as dist

try:
    if sys.argv[1] == "torch":
        dist.init_process_group("ddl", timeout=datetime.timedelta(seconds=15))
    if ddl.rank() == 0:
        if sys.argv[1] == "torch":
            dist.new_group([0, 1], timeout=datetime.timedelta(seconds=15))
        else:
            from ddl.torch import _groups
            _groups.world()
    elif sys.argv[1] == "torch":
        dist.all_reduce(torch.ones(3))
    else:
        ddl.bcast(np.ones(3, "f"), name="weights")
except Exception as error:
    print("error", ddl.rank(), " ".join(str(error).split()), flush=True)
    sys.exit(3)
"""


@pytest.mark.parametrize("hosts", ["3", "2,1", "1,1,1"])
@pytest.mark.parametrize("kind", ["call", "group"])
def test_rank_that_ends_while_others_are_in_a_group(jobs: Any, kind: str, hosts: str) -> None:
    """It waits for them at the end of its program, and answers: only that it ends tells the others."""
    more = {"DDL_OPTIONS": "-timeout 3 -late 2", "DDL_EMULATE_HOSTS": hosts}
    job = jobs.mpirun(3, EARLY, kind, exit_together=True, **more)
    errors = {line.split()[1]: line for line in job.out.splitlines() if line.startswith("error ")}
    assert errors.keys() == {"0", "2"}, job.out + job.err
    for line in errors.values():
        assert "rank 1 " in line and "makes no further call" in line, job.out + job.err


@pytest.mark.parametrize("others", ["call", "torch"])
def test_group_that_a_rank_does_not_come_to(jobs: Any, tmp_path: Path, others: str) -> None:
    """It is in a call of all ranks: an error of both, or a warning, where another thread may come."""
    more = {"DDL_OPTIONS": "-timeout 5 -late 3 -patience 15", "DDL_FLIGHT_RECORDER": str(tmp_path)}
    job = jobs.mpirun(2, OTHER_CALL, others, exit_together=True, **more)
    errors = {line.split()[1]: line for line in job.out.splitlines() if line.startswith("error ")}
    assert errors.keys() == {"0", "1"}, job.out + job.err
    if others == "call":
        assert "rank 1 (" in errors["0"] and "waits in call 1 of all ranks (broadcast)" in errors["0"]
        assert "in the making of a group on rank 0 (" in errors["1"], errors
    else:
        assert "(it makes a group), whose process is alive; in allreduce of 3" in job.err, job.err
    records = {rank: json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in (0, 1)}
    forms = [call for call in records[0]["calls"] if call["kind"] == "form"]
    assert forms[-1]["call"] == "the making of a group" and forms[-1]["state"] != "done", records
    assert records[1]["calls"][-1]["kind"] == ("broadcast" if others == "call" else "allreduce")


@pytest.mark.parametrize("kind", ["calls", "message"])
def test_rank_that_raises_in_a_call(jobs: Any, tmp_path: Path, kind: str) -> None:
    """The other one makes no call meanwhile."""
    job = jobs.mpirun(2, PROGRAM, kind, str(tmp_path), exit_together=True)
    assert job.status == 1, job.out + job.err
    assert "the culprit's own error" in job.err
    assert (tmp_path / "said").read_text() == "ended", job.out + job.err
