"""DDL in a program that speaks MPI by mpi4py."""

from __future__ import annotations

from typing import Any

import pytest

IMPORTS = "from mpi4py import MPI\nimport ddl, numpy as np\n"
BY_HAND = {"DDL_AUTO_INIT": "0"}


@pytest.fixture(autouse=True)
def _needs_mpi4py(mpirun: Any) -> None:
    if mpirun.alone("import importlib.util as u, sys; sys.exit(not u.find_spec('mpi4py'))").status:
        pytest.skip("mpi4py is not installed in the environment under test")


def test_mpi_lives_on_after_ddl(mpirun: Any) -> None:
    program = """
assert ddl.size() == MPI.COMM_WORLD.size and ddl.rank() == MPI.COMM_WORLD.rank
ddl.init(comm=MPI.COMM_WORLD)
ddl.allreduce(np.ones(5))
ddl.finalize()
print("mpi", MPI.COMM_WORLD.allreduce(1))
"""
    run = mpirun(2, IMPORTS + program)
    assert run.status == 0 and run.lines("mpi ") == ["2", "2"], run.output


def test_a_communicator_in_place_of_a_freed_one(mpirun: Any) -> None:
    """MPI gives its handle again: it is not the one that DDL was initialised over."""
    program = """
import ctypes
from ddl import _core
library = ctypes.CDLL(_core.__file__)
world = MPI.COMM_WORLD

def total(comm):
    values = np.full(5, world.rank + 1.0)
    handles = [ctypes.c_void_p(MPI._handleof(of)) for of in (MPI.DOUBLE, MPI.SUM, comm)]
    at = ctypes.c_void_p(values.ctypes.data)
    assert library.ddl_allreduce_mpi(None, at, ctypes.c_size_t(5), *handles) == 0
    assert (values == comm.allreduce(world.rank + 1.0)).all(), (values, comm.size)
    return comm.size

everybody = world.Dup()
ddl.init(comm=everybody)
sizes = [total(everybody)]
everybody.Free()
for _ in range(4):
    half = world.Split(world.rank % 2)
    sizes.append(total(half))
    half.Free()
print("sizes", sizes, total(world), ddl.size())
ddl.finalize()
"""
    run = mpirun(4, IMPORTS + program, env=BY_HAND)
    assert run.status == 0 and run.lines("sizes ") == ["[4, 2, 2, 2, 2] 4 4"] * 4, run.output


def test_some_ranks_in_another_order(mpirun: Any) -> None:
    """Two halves that know nothing of each other, each numbered backwards, against mpi4py's own sums."""
    program = """
world = MPI.COMM_WORLD
half = world.Split(world.rank % 2, -world.rank)
ddl.init(comm=half)
ddl.init(comm=half.Dup())
ddl.init()
assert (ddl.rank(), ddl.size()) == (half.rank, half.size) == (2 - world.rank // 2, 3)
for count in (3, 70_001):
    mine = np.arange(count) * (world.rank + 1.0)
    np.testing.assert_array_equal(ddl.allreduce(mine), half.allreduce(mine))
assert ddl.bcast(np.array([float(world.rank)]), root=0)[0] == (4 if world.rank % 2 == 0 else 5)
half.Free()
ddl.barrier()
everyone = ddl.describe()["topology"]["hosts"]
print("hosts", [host["ranks"] for host in everyone])
try:
    ddl.init(comm=world)
except ddl.DDLError as error:
    print("other", error)
ddl.finalize()
ddl.init(comm=world)
print("again", ddl.size(), ddl.allreduce(np.ones(1))[0])
"""
    run = mpirun(6, IMPORTS + program, env=BY_HAND)
    assert run.status == 0, run.output
    assert run.lines("hosts ") == ["[[0, 1, 2]]"] * 6
    assert run.lines("again ") == ["6 6.0"] * 6
    others = run.lines("other ")
    assert len(others) == 6 and all("over 3 other ranks" in text for text in others), others
    assert all("DDL_AUTO_INIT=0" in text for text in others)


def test_some_ranks_on_two_hosts(mpirun: Any) -> None:
    """The ranks that are left out sit in MPI meanwhile."""
    program = """
world = MPI.COMM_WORLD
some = world.Split(0 if world.rank in (0, 2, 3) else MPI.UNDEFINED)
if some != MPI.COMM_NULL:
    ddl.init(comm=some)
    print("sum", ddl.num_hosts(), ddl.allreduce(np.full(9, world.rank + 1.0))[8])
    ddl.finalize()
world.Barrier()
"""
    run = mpirun(4, IMPORTS + program, hosts="2,2", env=BY_HAND)
    assert run.status == 0 and run.lines("sum ") == ["2 8.0"] * 3, run.output


@pytest.mark.parametrize(
    ("comm", "words"),
    [
        ("MPI.COMM_NULL", "MPI_COMM_NULL"),
        ("MPI.COMM_SELF.Create_intercomm(0, MPI.COMM_WORLD, 1 - MPI.COMM_WORLD.rank)", "joins two groups"),
    ],
)
def test_no_communicator_of_ranks(mpirun: Any, comm: str, words: str) -> None:
    program = f"""
try:
    ddl.init(comm={comm})
except ddl.DDLError as error:
    print("refused", error)
ddl.init(comm=MPI.COMM_WORLD)
print("then", ddl.size())
"""
    run = mpirun(2, IMPORTS + program, env=BY_HAND)
    assert run.status == 0 and run.lines("then ") == ["2", "2"], run.output
    refused = run.lines("refused ")
    assert len(refused) == 2 and all(words in text for text in refused), run.output


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_rank_that_does_not_come(mpirun: Any, missing: int) -> None:
    """The others name it, although they cannot yet tell who is where."""
    program = """
import sys, time
rank = MPI.COMM_WORLD.rank
if rank != int(sys.argv[1]):
    try:
        ddl.init("-timeout 2", comm=MPI.COMM_WORLD)
    except ddl.DDLError as error:
        print("late", error, flush=True)
    time.sleep(4)  # the other one may be about to say so, too
else:
    time.sleep(20)
MPI.COMM_WORLD.Abort(3)
"""
    run = mpirun(3, IMPORTS + program, str(missing), env=BY_HAND)
    assert run.status != 0 and run.seconds < 18, run.output
    said = run.lines("late ")
    words = (
        f"not all ranks called ddl_init within 2 s: rank {missing} is missing; in ddl_init; every rank of "
    )
    assert len(said) == 2 and all(words in text for text in said), run.output


def test_a_rank_whose_options_are_wrong(mpirun: Any) -> None:
    """The others are told at once."""
    program = """
try:
    ddl.init("-not_known 1" if MPI.COMM_WORLD.rank == 1 else "-timeout 1000", comm=MPI.COMM_WORLD)
except ddl.DDLError as error:
    print("refused", error.code, error)
ddl.init("-timeout 30", comm=MPI.COMM_WORLD)
print("then", ddl.size())
"""
    run = mpirun(3, IMPORTS + program, env=BY_HAND)
    assert run.status == 0 and run.lines("then ") == ["3"] * 3, run.output
    refused = run.lines("refused ")
    assert len(refused) == 3 and all(
        "2 [ERROR DDL-1-2] unknown option '-not_known'" in text for text in refused
    )
    assert sum("[on rank 1]" in text for text in refused) == 2, run.output


def test_a_rank_that_gets_no_thread(mpirun: Any) -> None:
    """The others are told at once, and what to do about it."""
    program = """
import resource, threading
MPI.COMM_WORLD.Barrier()
# The stacks of threads that have ended would be used again.
hold = threading.Event()
for _ in range(8):
    threading.Thread(target=hold.wait, daemon=True).start()
before = resource.getrlimit(resource.RLIMIT_AS)
if MPI.COMM_WORLD.rank == 1:
    pages = int(open("/proc/self/statm").read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**21, before[1]))
try:
    ddl.init("-timeout 1000", comm=MPI.COMM_WORLD)
except ddl.DDLError as error:
    print("refused", error.code, error, flush=True)
resource.setrlimit(resource.RLIMIT_AS, before)
MPI.COMM_WORLD.Barrier()
import os; os._exit(0)
"""
    run = mpirun(3, IMPORTS + program, env=BY_HAND)
    refused = run.lines("refused ")
    assert len(refused) == 3, run.output
    assert all(
        "6 [ERROR DDL-1-6] cannot start a thread: " in text and "ulimit -v" in text for text in refused
    )
    assert sum("[on rank 1]" in text for text in refused) == 2, run.output


def test_in_the_background_of_collectives(mpirun: Any) -> None:
    """One thread initialises DDL while another is in collectives of the same communicator."""
    program = """
import threading
thread = threading.Thread(target=ddl.init, kwargs={"comm": MPI.COMM_WORLD})
world, mine = MPI.COMM_WORLD, MPI.COMM_WORLD.rank
# All ranks have begun before any may end.
world.Barrier()
thread.start()
rounds = 0
while rounds < 200 or world.allreduce(thread.is_alive(), op=MPI.LOR):
    rounds += 1
    sums = world.allreduce(np.full(rounds % 50, mine + rounds))
    np.testing.assert_array_equal(sums, np.full(rounds % 50, world.size * rounds + sum(range(world.size))))
    assert world.allgather(mine * rounds) == [rank * rounds for rank in range(world.size)]
    root = rounds % world.size
    assert world.bcast(rounds if mine == root else None, root=root) == rounds
thread.join()
print("sum", ddl.allreduce(np.ones(3))[0])
"""
    run = mpirun(4, IMPORTS + program, env=BY_HAND)
    assert run.status == 0 and run.lines("sum ") == ["4.0"] * 4, run.output


def test_another_mpi(mpirun: Any) -> None:
    """Handles of two MPI libraries mean nothing to each other."""
    program = """
from ddl import _core
try:
    _core.init_comm(None, MPI.COMM_WORLD.py2f(), "MPICH Version: 4.2, of elsewhere")
except ddl.DDLError as error:
    print("refused", error)
"""
    run = mpirun.alone(IMPORTS + program, env=BY_HAND)
    assert run.status == 0, run.output
    assert "of MPICH Version: 4.2, and DDL uses Open MPI" in run.lines("refused ")[0], run.output


def test_another_thread_than_mpi_allows(mpirun: Any) -> None:
    """An error, where MPI would be called by a thread that it was not initialised for."""
    program = """
import mpi4py
mpi4py.rc.thread_level = "funneled"
from mpi4py import MPI
import threading, ddl
ddl.init()
assert MPI.Query_thread() == MPI.THREAD_FUNNELED
ddl.barrier()
said = []
def call():
    try:
        ddl.barrier()
    except ddl.DDLError as error:
        said.append(f"{error.code} {error}")
thread = threading.Thread(target=call)
thread.start()
thread.join()
print("said", *said)
ddl.barrier()
print("rank", ddl.rank())
"""
    run = mpirun(2, program, env=BY_HAND)
    assert run.status == 0 and len(run.lines("rank ")) == 2, run.output
    said = run.lines("said ")
    assert len(said) == 2 and all(
        line.startswith("3 [ERROR DDL-1-3] MPI was initialised") for line in said
    ), said
