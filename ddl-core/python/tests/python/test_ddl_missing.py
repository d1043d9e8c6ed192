"""Ranks that are late, stopped, killed or gone: every live rank gets an error in time that names them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rank_processes import own_segments, segments_left

PROGRAM = Path(__file__).parent / "programs/misbehave.py"
LIMIT = {"DDL_OPTIONS": "-timeout 1"}


@pytest.mark.parametrize(("hosts", "culprit"), [("3", 0), ("2,1", 2), ("1,2", 1), ("1,1,1", 1)])
@pytest.mark.parametrize("case", ["stop", "stop-busy"])
def test_rank_that_does_not_come(mpirun: Any, case: str, hosts: str, culprit: int) -> None:
    """Within the limit and the grace for asking around, on all ranks but the missing one."""
    run = mpirun(3, PROGRAM, case, str(culprit), hosts=hosts, env=LIMIT, exit_together=True)
    assert run.status != 0, run.output
    live = {str(rank) for rank in range(3)} - {str(culprit)}
    errors = {line.split()[0]: line.split(maxsplit=3) for line in run.lines("error ")}
    assert live <= set(errors), run.output
    for rank in live:
        _, seconds, code, text = errors[rank]
        assert code == "8" and text.startswith("[ERROR DDL-1-8] Timed out after 1 s: "), text
        assert f"rank {culprit} (host emulated" in text and "did not arrive" in text, text
        assert "in allreduce of" in text and "-timeout" in text, text
        for other in live:
            assert f"rank {other} (" not in text, "a rank that waited is accused"
        assert float(seconds) < (12 if case == "stop-busy" else 5), text
        assert f"{rank} 8 True" in run.lines("again "), run.output


@pytest.mark.parametrize(("hosts", "culprit"), [("3", 0), ("2,1", 2), ("1,2", 0), ("1,1,1", 1)])
def test_late_is_not_dead(mpirun: Any, hosts: str, culprit: int) -> None:
    """A rank that computes or saves for longer than -timeout is waited for, and named while it is."""
    limits = {"DDL_OPTIONS": "-timeout 1 -late 2"}
    run = mpirun(3, PROGRAM, "late", str(culprit), hosts=hosts, env=limits, timeout=60)
    assert run.status == 0, run.output
    assert len(run.lines("no error ")) == 3, run.output
    warnings = [line for line in run.stderr.splitlines() if line.startswith("[WARN DDL-1-8]")]
    assert 1 <= len(warnings) <= 2, run.output
    assert "in allreduce of 10 float32 elements (op sum) (call " in warnings[0], warnings
    assert f" s for rank {culprit} (host emulated" in warnings[0], warnings
    assert "its last call was number" in warnings[0], warnings


@pytest.mark.parametrize(("hosts", "culprit"), [("3", 1), ("1,2", 0), ("2,1", 1)])
def test_patience_ends(mpirun: Any, hosts: str, culprit: int) -> None:
    limits = {"DDL_OPTIONS": "-timeout 1 -late 1 -patience 2"}
    run = mpirun(3, PROGRAM, "late", str(culprit), hosts=hosts, env=limits, exit_together=True)
    assert run.status != 0, run.output
    errors = {line.split()[0]: line.split(maxsplit=3) for line in run.lines("error ")}
    assert {str(rank) for rank in range(3)} - {str(culprit)} <= set(errors), run.output
    texts = {text for _, _, code, text in errors.values()}
    assert len(texts) == 1, texts
    text = texts.pop()
    assert f"rank {culprit} (host emulated" in text and "although its process is alive" in text, text
    assert "Timed out after 2 s: " in text and "-patience" in text, text


@pytest.mark.parametrize("hosts", ["3", "1,2", "1,1,1"])
def test_one_late_one_stopped(mpirun: Any, hosts: str) -> None:
    """While rank 0 saves, rank 1 stops: an error within the limit for those that do not answer."""
    limit = {"DDL_OPTIONS": "-timeout 2"}
    run = mpirun(3, PROGRAM, "late-and-stop", "1", hosts=hosts, env=limit, timeout=60)
    errors = {line.split()[0]: line.split(maxsplit=3) for line in run.lines("error ")}
    assert "2" in errors, run.output
    _, _, code, text = errors["2"]
    assert code == "8" and "rank 1 (host emulated" in text and "does not answer" in text, text
    assert "rank 0" not in text, "a rank that is merely late is accused"


def test_nothing_is_written_after_an_error(mpirun: Any) -> None:
    """The other host stops in the midst of a call; when it goes on, the caller has reused its memory."""
    program = """
import ddl, numpy as np, os, signal, sys, time
x = np.ones(8_000_000, "f")
pids = ddl.allreduce(np.array([os.getpid() if ddl.rank() == r else 0 for r in range(2)], np.int64))
if ddl.rank() == 1:
    if os.fork() == 0:
        time.sleep(0.3)
        os.kill(pids[1], signal.SIGSTOP)
        os._exit(0)
try:
    while True:
        ddl.allreduce(x)
except ddl.DDLError as error:
    if ddl.rank() == 1:
        time.sleep(30)  # its end would end the job
    print("said", error.code)
    x[:] = 123
    os.kill(pids[1], signal.SIGCONT)
    time.sleep(3)
    print("intact", bool((x == 123).all()))
    sys.stdout.flush()
"""
    run = mpirun(2, program, hosts="1,1", env={"DDL_OPTIONS": "-timeout 1"}, timeout=60)
    assert run.lines("said ") == ["8"], run.output
    assert run.lines("intact ") == ["True"], run.output


@pytest.mark.parametrize("hosts", ["3", "1,2"])
def test_stopped_within_an_operation_of_mpi(mpirun: Any, hosts: str) -> None:
    """An error, where the program was aborted before: an active collective operation must not be freed."""
    program = """
import ddl, numpy as np, os, signal, time
from ddl import _core
x = np.ones(4_000_000, "f")
ddl.barrier()
if ddl.rank() == 1:
    pid = os.getpid()
    if os.fork() == 0:
        time.sleep(0.5)
        os.kill(pid, signal.SIGSTOP)
        os._exit(0)
try:
    while True:
        ddl.allreduce_plain(x)
except ddl.DDLError as error:
    print("said", ddl.rank(), error.code, flush=True)
    time.sleep(1)
"""
    run = mpirun(3, program, hosts=hosts, env={"DDL_OPTIONS": "-timeout 1"}, timeout=60)
    said = run.lines("said ")
    assert {"0 8", "2 8"} <= set(said), run.output
    assert "An error occurred in MPI" not in run.output and "ERRORS_ARE_FATAL" not in run.output, run.output


@pytest.mark.parametrize(
    "differing", ["-dump_iter 2", '-topology {"a":"' + "x" * 2000 + '1"}'], ids=["dump_iter", "long"]
)
def test_options_that_differ_are_told_at_the_start(mpirun: Any, differing: str) -> None:
    """Also where the beginning of a long description is the same, and for what used to hang later."""
    program = """
import os
other = os.environ["DIFFERING"]
if os.environ["OMPI_COMM_WORLD_RANK"] == "1":
    other = other.replace('1"}', '2"}') if "topology" in other else ""
os.environ["DDL_OPTIONS"] = "-timeout 5 " + other
os.environ["DDL_AUTO_INIT"] = "0"
import ddl
try:
    ddl.init()
except ddl.DDLError as error:
    print("said", error.code, str(error).replace("\\n", " "))
"""
    run = mpirun(2, program, env={"DIFFERING": differing}, timeout=60)
    said = run.lines("said ")
    assert len(said) == 2, run.output
    assert all(line.startswith("2 [ERROR DDL-1-2] rank 1 has ") and "but rank 0 has" in line for line in said)


@pytest.mark.parametrize("hosts", ["3", "2,1"])
@pytest.mark.parametrize("case", ["kill", "raise", "exit"])
def test_rank_that_ends(mpirun: Any, case: str, hosts: str) -> None:
    """The job ends soon and with an error status, although no limit has passed; no shared memory is left."""
    before = own_segments()
    # that a rank was killed is seen by its own host; another host learns it from the launcher
    launcher = case == "kill" and hosts != "3"
    run = mpirun(3, PROGRAM, case, "2", hosts=hosts, exit_together=not launcher)
    assert run.status != 0, run.output
    assert run.seconds < 30
    assert "no error" not in run.stdout
    if case == "raise":
        assert "the culprit's own error" in run.stderr
    errors = run.lines("error ")
    assert len(errors) == 2 or launcher, run.output
    assert all("rank 2 (host " in line for line in errors), run.output
    assert not segments_left(before)


def test_segment_has_no_name_while_ranks_run(mpirun: Any) -> None:
    """Nothing can be left behind, as the name is gone before the first call."""
    program = """
import ddl, os
ddl.barrier()
mapped = [line for line in open("/proc/self/maps") if "/dev/shm/ddl-" in line]
assert mapped and all("(deleted)" in line for line in mapped), mapped
print("mapped")
ddl.barrier()
"""
    run = mpirun(2, program)
    assert run.status == 0 and len(run.lines("mapped")) == 2, run.output


def test_a_limit_that_is_not_reached(mpirun: Any) -> None:
    """A rank that is late, but not too late, and calls in between that take their time."""
    program = """
import ddl, numpy as np, time
for i in range(3):
    if ddl.rank() == i % ddl.size():
        time.sleep(0.7)
    assert (ddl.allreduce(np.ones(1000, "f")) == ddl.size()).all()
print("done")
"""
    run = mpirun(3, program, hosts="2,1", env={"DDL_OPTIONS": "-timeout 2"})
    assert run.status == 0 and len(run.lines("done")) == 3, run.output
