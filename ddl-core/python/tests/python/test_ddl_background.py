"""Calls that go on in the background: handles, grouping, priorities, and their failures."""

from __future__ import annotations

from typing import Any

import pytest
from rank_processes import own_segments, segments_left

LAYOUTS = ["1", "3", "1,1", "2,1"]


def ranks_of(hosts: str) -> int:
    return sum(int(n) for n in hosts.split(","))


@pytest.mark.parametrize("hosts", LAYOUTS)
def test_many_started_calls_are_right_and_made_together(mpirun: Any, hosts: str) -> None:
    """Also between calls that are waited for, and waited for in another order."""
    program = """
import ddl, numpy as np, random
rank, size = ddl.rank(), ddl.size()
rng = np.random.default_rng(5)
inputs = [rng.integers(-9, 9, (size, int(n))) for n in rng.integers(0, 3000, 120)]
types = ["f", "d", "i4"]
ddl.barrier()
before = ddl.stats()["calls"]
started = []
for i, x in enumerate(inputs):
    started.append((i, ddl.allreduce_start(x[rank].astype(types[i % 3]), name=f"t{i}", priority=i % 4)))
    if i % 40 == 39:
        assert ddl.allreduce(np.ones(2, "f"))[0] == size
random.Random(rank).shuffle(started)
for i, handle in started:
    got = handle.wait()
    assert got.dtype == types[i % 3] and np.array_equal(got, inputs[i].sum(0)), i
    assert handle.done() and handle.wait() is got
print("calls", ddl.stats()["calls"] - before)
"""
    run = mpirun(ranks_of(hosts), program, hosts=hosts)
    assert run.status == 0, run.output
    calls = [int(n) for n in run.lines("calls ")]
    assert len(calls) == ranks_of(hosts) and len(set(calls)) == 1, run.output
    if ranks_of(hosts) > 1:
        assert calls[0] < 123, "nothing was made together"


def test_priority_comes_first(mpirun: Any) -> None:
    """Among the calls that all ranks have started: a large one is under way meanwhile."""
    program = """
import ddl, numpy as np
from ddl import _core
arrays = [np.ones(30_000_000, "f"), np.ones(30_000_000, "f"), np.ones(9, "f")]
ddl.barrier()
first, low, high = (
    _core.allreduce_start([x.ctypes.data], [x.size], 0, 0, None, i) for i, x in enumerate(arrays)
)
_core.wait(first)
_core.wait(high)
print("low was done first", _core.test(low))
_core.wait(low)
"""
    run = mpirun(2, program, hosts="1,1")
    assert run.status == 0, run.output
    assert run.lines("low was done first ") == ["False", "False"], run.output


@pytest.mark.parametrize("hosts", ["2", "1,1"])
def test_a_missing_rank_is_named_at_the_wait(mpirun: Any, hosts: str) -> None:
    program = """
import ddl, numpy as np, time, sys
ddl.barrier()
if ddl.rank() == 1:
    time.sleep(20)
handles = [ddl.allreduce_start(np.ones(10, "f"), name=str(i)) for i in range(3)]
for handle in handles:
    try:
        handle.wait()
        print("no error")
    except ddl.DDLError as error:
        print("said", error)
        sys.stdout.flush()
"""
    run = mpirun(2, program, hosts=hosts, env={"DDL_OPTIONS": "-timeout 1 -patience 1"}, timeout=60)
    said = [line for line in run.lines("said ") if "did not arrive" in line]
    assert len(said) >= 3 and "no error" not in run.stdout, run.output
    assert all("[ERROR DDL-1-8] Timed out after 1 s: rank 1 (host " in line for line in said), said


# Rank 2 ends or stops while calls are under way in the background of all ranks.
CUT_OFF = """
import ddl, numpy as np, os, signal, sys, time
arrays = [np.ones(400_000, "f") for _ in range(4)]
ddl.barrier()
start = time.monotonic()
if ddl.rank() == 2:
    pid = os.getpid()
    if os.fork() == 0:
        time.sleep(0.5)
        os.kill(pid, getattr(signal, sys.argv[1]))
        os._exit(0)
try:
    while True:
        handles = [ddl.allreduce_start(x, name=f"t{i}") for i, x in enumerate(arrays)]
        for handle in handles:
            handle.wait()
except ddl.DDLError as error:
    # What else was started fails alike, and at once.
    again = time.monotonic()
    for handle in handles[1:]:
        try:
            handle.wait()
        except ddl.DDLError:
            pass
    print("said", ddl.rank(), f"{again - start:.2f} {time.monotonic() - again:.2f}", error, flush=True)
"""


@pytest.mark.parametrize("hosts", ["3", "2,1"])
def test_a_rank_stopped_amid_background_calls_is_named(mpirun: Any, hosts: str) -> None:
    run = mpirun(3, CUT_OFF, "SIGSTOP", hosts=hosts, env={"DDL_OPTIONS": "-timeout 1"}, exit_together=True)
    assert run.status != 0, run.output
    said = [line.split(maxsplit=3) for line in run.lines("said ")]
    assert {"0", "1"} <= {words[0] for words in said}, run.output
    for rank, until_first, rest, text in said:
        if rank != "2":
            assert text.startswith("[ERROR DDL-1-8] Timed out after 1 s: rank 2 (host emulated"), text
            assert float(until_first) < 12 and float(rest) < 1, said


@pytest.mark.parametrize("hosts", ["3", "2,1"])
def test_a_rank_killed_amid_background_calls_ends_the_job(mpirun: Any, hosts: str) -> None:
    """Soon, although no limit has passed, and nothing is left of the shared memory."""
    before = own_segments()
    # its own host sees that it has ended, another host learns it from the launcher
    run = mpirun(3, CUT_OFF, "SIGKILL", hosts=hosts, exit_together=hosts == "3")
    assert run.status != 0 and run.seconds < 30, run.output
    said = run.lines("said ")
    assert len(said) == 2 or hosts != "3", run.output
    assert all("rank 2 (host " in line for line in said), run.output
    assert not segments_left(before)


@pytest.mark.parametrize("hosts", ["2", "1,1"])
def test_calls_started_in_another_order_are_an_error(mpirun: Any, hosts: str) -> None:
    program = """
import ddl, numpy as np
names = ["weights", "bias"] if ddl.rank() else ["bias", "weights"]
try:
    for handle in [ddl.allreduce_start(np.ones(10, "f"), name=n) for n in names]:
        handle.wait()
    print("no error")
except ddl.DDLError as error:
    print("said", error)
"""
    run = mpirun(2, program, hosts=hosts)
    said = run.lines("said ")
    assert len(said) == 2 and "no error" not in run.stdout, run.output
    assert all("[ERROR DDL-1-7]" in line and "'bias" in line and "'weights" in line for line in said), said


def test_a_handle_is_closed_by_its_wait(mpirun: Any) -> None:
    program = """
import ddl, numpy as np
from ddl import _core
x = np.ones(4, "f")
handle = _core.allreduce_start([x.ctypes.data], [4], 0, 0, None, 0)
_core.wait(handle)
for call in (_core.wait, _core.test):
    try:
        call(handle)
    except ddl.DDLError as error:
        print("said", error)
"""
    run = mpirun(1, program)
    assert run.status == 0, run.output
    assert len(run.lines("said ")) == 2 and all("is not open" in line for line in run.lines("said "))


def test_what_was_started_is_made_before_the_end(mpirun: Any) -> None:
    """Nobody waits, and the program ends."""
    program = """
import ddl, numpy as np
x = np.ones(1000, "f")
from ddl import _core
_core.allreduce_start([x.ctypes.data], [x.size], 0, 0, None, 0)
ddl.finalize()
assert (x == ddl.__dict__.get("n", 2)).all(), x
print("right")
"""
    run = mpirun(2, program)
    assert run.status == 0, run.output
    assert run.lines("right") == ["", ""]
