"""What goes wrong ends in an error that says what, and in time."""

from __future__ import annotations

from typing import Any


def test_error_of_ddl_comes_out_of_horovod(jobs: Any) -> None:
    """On both ranks, with DDL's own text, that names them and their calls."""
    job = jobs.mpirun(2, "failures.py", "disagreement")
    assert job.status == 0, job.err
    for rank in (0, 1):
        line = next(line for line in job.out.splitlines() if line.startswith(f"rank {rank}: "))
        assert "[ERROR DDL-1-7] ranks made different calls" in line
        assert "allreduce of 1000 float32 elements" in line and "allreduce of 3 float32 elements" in line


def test_exception_on_one_rank(jobs: Any) -> None:
    job = jobs.mpirun(2, "failures.py", "exception")
    assert job.status != 0
    assert "this rank has had enough" in job.err
    assert "Horovod has been shut down. This was caused by an exception on one of the ranks" in job.err


def test_ranks_that_wait_for_each_other(jobs: Any) -> None:
    """By default this takes two minutes."""
    job = jobs.mpirun(2, "failures.py", "wait_for_each_other", HOROVOD_STALL_CHECK_TIME_SECONDS="1")
    assert job.status != 0
    assert "Each rank waits for a tensor that another one has not submitted" in job.err
    assert "0: [allreduce.of rank 1]" in job.err and "1: [allreduce.of rank 0]" in job.err
    assert "Horovod has been shut down" in job.err


def test_late_rank(jobs: Any) -> None:
    """It is waited for; an error where that is limited."""
    job = jobs.mpirun(2, "failures.py", "late", HOROVOD_STALL_CHECK_TIME_SECONDS="1")
    assert job.status == 0, job.err
    limit = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "1", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "2"}
    job = jobs.mpirun(2, "failures.py", "late", **limit)
    assert job.status != 0 and "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS is the limit" in job.err, job.err


def test_killed_rank_ends_the_job(jobs: Any) -> None:
    job = jobs.mpirun(2, "failures.py", "killed")
    assert job.status != 0
    assert "signal" in job.err and "9" in job.err


_STARTS = """
import os, subprocess, sys
import horovod.torch as hvd, torch
JOIN = "import horovod.torch as h; h.init(); print(h.size(), flush=True)"
def start(*words, before="pass", after="pass"):
    command = [*words, sys.executable, "-c", f"import sys; {before}; {JOIN}; {after}"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
def end():
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == 2
    print("passed children", flush=True)
"""
_LATER = """
child = start(before="sys.stdin.readline()")
hvd.init()
out, _ = child.communicate("go on\\n")
assert out.split() == ["1"], out
end()
"""
_FIRST = """
child = start(after="sys.stdin.read()")
assert child.stdout.readline().split() == ["2"]
try:
    hvd.init()
finally:
    child.kill()
"""
_JOBS = """
def job():
    out, _ = start("mpirun", "-n", "2", "--map-by", ":OVERSUBSCRIBE").communicate()
    assert out.split() == ["2", "2"], out
job()
hvd.init()
job()
end()
"""


def test_children_that_start_before_the_rank(jobs: Any) -> None:
    """They are alone; a rank whose place one has taken says so."""
    job = jobs.mpirun(2, _STARTS + _LATER)
    assert job.status == 0 and job.passed("children") == 2, job.out + job.err
    job = jobs.mpirun(2, _STARTS + _FIRST)
    assert job.status != 0 and "has joined the job as rank 0" in job.err, job.err
    assert "start programs that call hvd.init after hvd.init of the rank" in job.err


def test_jobs_that_ranks_start(jobs: Any) -> None:
    """By mpirun, each is a job of its own, before and after hvd.init. ddlrun refuses."""
    job = jobs.mpirun(2, _STARTS + _JOBS)
    assert job.status == 0 and job.passed("children") == 2, job.out + job.err
    job = jobs.mpirun(2, _STARTS + "hvd.init()\nassert start('ddlrun', '-np', '2').wait() == 1\nend()\n")
    assert job.status == 0 and job.passed("children") == 2, job.out + job.err
    assert job.err.count("[ERROR DDL-2-11] ddlrun was started inside rank") == 2


def test_rank_that_replaces_its_program(jobs: Any) -> None:
    program = "hvd.init()\nos.execv(sys.executable, [sys.executable, *sys.argv])\n"
    job = jobs.mpirun(2, _STARTS + program)
    assert job.status != 0 and "has replaced its program (os.execv) after hvd.init" in job.err


def test_start_that_ddl_refuses(jobs: Any) -> None:
    job = jobs.mpirun(2, "failures.py", "start_only", DDL_OPTIONS="-nonsense 3")
    assert job.status != 0
    assert "Horovod could not be initialized: [ERROR DDL-1-2]" in job.out + job.err
    assert "-nonsense" in job.out + job.err
    assert "Horovod initialization failed" in job.err


def test_second_start(jobs: Any) -> None:
    """It needs an MPI that hvd.shutdown has not finalized: an error says so, and how to have one."""
    job = jobs.mpirun(2, "failures.py", "second_start")
    assert job.status != 0
    assert "hvd.shutdown has finalized MPI" in job.out + job.err
    assert "Horovod initialization failed" in job.err and "MPI_Query_thread" not in job.err
    for first in ("ddl", "mpi4py.MPI"):
        job = jobs.mpirun(2, "failures.py", "second_start", first, DDL_AUTO_INIT="1")
        assert job.status == 0, job.err
        assert job.out.count("sums 3 3 3") == 2, job.out


def test_unknown_switch(jobs: Any) -> None:
    job = jobs.mpirun(2, "failures.py", "start_only", HOROVOD_CPU_OPERATIONS="carrier-pigeon")
    assert job.status != 0
    assert "Unsupported CPU operation type" in job.err


def test_gpus_without_a_build_for_gpus(jobs: Any) -> None:
    job = jobs.mpirun(2, "failures.py", "start_only", HOROVOD_GPU_OPERATIONS="ddl")
    assert job.status != 0
    assert "HOROVOD_GPU_OPERATIONS=ddl, but this Horovod is built for tensors in host memory" in job.err


def test_some_of_the_ranks(jobs: Any) -> None:
    """MPI reduces, and a warning says so; where DDL was asked for it is an error."""
    job = jobs.mpirun(3, "failures.py", "some_ranks")
    assert job.status == 0, job.err
    assert job.out.count("reduced") == 2
    assert "MPI reduces in place of DDL" in job.out + job.err
    job = jobs.mpirun(3, "failures.py", "some_ranks", HOROVOD_CPU_OPERATIONS="ddl")
    assert job.status != 0
    assert "call hvd.init() without comm" in job.out + job.err
