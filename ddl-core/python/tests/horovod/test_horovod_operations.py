"""Horovod's operations equal numpy's, and are made by DDL or by MPI as the documentation says."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from rank_processes import ROOT

#: As in programs/timeline_end.py.
OPERATIONS = 4000
CASES = (
    *("types_and_operations", "averages", "scaled", "in_place", "fused", "at_once"),
    *("broadcasts", "left_to_mpi", "joined"),
)
BUILT = "import horovod.torch as hvd; hvd.init(); print(hvd.ddl_built(), hvd.mpi_built(), hvd.gloo_built())"


def test_by_ddl(jobs: Any) -> None:
    """Horovod's timeline shows it, too."""
    job = jobs.mpirun(2, "operations.py", HOROVOD_TIMELINE="timeline.json")
    assert job.status == 0, job.err
    assert {case: job.passed(case) for case in CASES} == dict.fromkeys(CASES, 2)
    shown = (job.folder / "timeline.json").read_text()
    assert shown.count('"DDL_ALLREDUCE"') > 20 and shown.count('"DDL_BCAST"') >= 5


def test_a_timeline_has_its_end(jobs: Any) -> None:
    """Events still waiting to be written when Horovod shuts down are not lost."""
    job = jobs.mpirun(2, "timeline_end.py", HOROVOD_TIMELINE="timeline.json")
    assert job.status == 0, job.err
    events = json.loads((job.folder / "timeline.json").read_text())
    assert sum(event.get("name") == "DDL_ALLREDUCE" for event in events) == OPERATIONS


def test_by_mpi(jobs: Any) -> None:
    """The switch at run time: the same results without a call of DDL."""
    job = jobs.mpirun(2, "operations.py", "by_mpi", HOROVOD_CPU_OPERATIONS="mpi")
    assert job.status == 0, job.err
    assert {case: job.passed(case) for case in CASES} == dict.fromkeys(CASES, 2)


def test_process_sets_beside_ddl(jobs: Any) -> None:
    job = jobs.mpirun(3, "operations.py", "process_sets")
    assert job.status == 0, job.err
    assert job.passed("process_sets") == job.passed("fused") == 3


def test_hosts(jobs: Any) -> None:
    """Four ranks that act as two hosts: DDL reduces within each and across."""
    job = jobs.mpirun(4, "operations.py", DDL_EMULATE_HOSTS="2,2")
    assert job.status == 0, job.err
    assert job.passed("types_and_operations") == job.passed("fused") == 4


@pytest.mark.parametrize("launcher", ["ddlrun", "horovodrun"])
def test_launchers(jobs: Any, launcher: str) -> None:
    job = getattr(jobs, launcher)(2, "operations.py")
    assert job.status == 0, job.out + job.err
    assert job.passed("fused") == job.passed("broadcasts") == 2


def test_either_horovod_or_horovod_mpi(horovod_prefix: Path) -> None:
    """They have the same modules."""
    words = [
        ROOT / "build/tools/bin/wmlce",
        "--root",
        ROOT,
        "env",
        "create",
        "both",
        "horovod",
        "horovod-mpi",
    ]
    run = subprocess.run(words, capture_output=True, text=True, timeout=200)
    assert run.returncode != 0 and "horovod-mpi" in run.stdout + run.stderr


def test_what_is_built(jobs: Any) -> None:
    job = jobs.alone(BUILT)
    assert job.out.split() == ["True", "True", "False"], job.err
    listed = jobs.tool(["horovodrun", "--check-build"]).out
    for line in ("[X] TensorFlow", "[X] PyTorch", "[X] MPI", "[X] DDL", "[ ] Gloo"):
        assert line in listed, listed
