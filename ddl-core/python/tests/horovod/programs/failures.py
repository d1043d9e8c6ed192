"""failures.py CASE: what goes wrong must end in an error, on every rank that can still say so."""

import importlib
import os
import signal
import sys
import threading
import time

import horovod.torch as hvd
import torch
from _cases import ddl_calls
from horovod.common.exceptions import HorovodInternalError


def exception() -> None:
    """One rank leaves with an error, and the other waits for it."""
    hvd.init()
    if hvd.rank() == 1:
        raise RuntimeError("this rank has had enough")
    try:
        hvd.allreduce(torch.ones(4), name="never")
    except HorovodInternalError as error:
        print(f"rank 0: {error}", flush=True)
        raise


def killed() -> None:
    """One rank is killed between two operations."""
    hvd.init()
    hvd.allreduce(torch.ones(4), name="fine")
    if hvd.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    hvd.allreduce(torch.ones(4), name="never")


def disagreement() -> None:
    """A thread of rank 0 uses DDL on its own, so that what the ranks ask of DDL differs."""
    hvd.init()
    import ddl
    import numpy as np

    own = threading.Thread(target=lambda: refused_by_ddl(lambda: ddl.allreduce(np.ones(3, "f4"))))
    if hvd.rank() == 0:
        own.start()
        time.sleep(0.5)  # until the thread waits for rank 1
    try:
        hvd.allreduce(torch.ones(1000), op=hvd.Sum, name="gradient")
    except HorovodInternalError as error:
        sys.stdout.write(f"rank {hvd.rank()}: {error}\n")
        sys.stdout.flush()
    else:
        raise AssertionError("a wrong sum")
    if hvd.rank() == 0:
        own.join()


def refused_by_ddl(call) -> None:
    import ddl

    try:
        call()
    except ddl.DDLError:
        pass
    else:
        raise AssertionError("a wrong sum")


def some_ranks() -> None:
    """Horovod has two ranks of three: MPI reduces."""
    if int(os.environ["OMPI_COMM_WORLD_RANK"]) == 2:
        from mpi4py import MPI  # so that MPI's start and end have all ranks

        assert MPI.COMM_WORLD.size == 3
        return
    hvd.init(comm=[0, 1])
    found = hvd.allreduce(torch.ones(5), op=hvd.Sum, name="two")
    assert found.tolist() == [2.0] * 5 and ddl_calls() == 0
    sys.stdout.write("reduced\n")
    sys.stdout.flush()


def second_start() -> None:
    """Horovod is initialised three times. Argument: what has started MPI before, if anything."""
    if len(sys.argv) > 2:
        importlib.import_module(sys.argv[2])
    sums = []
    for _ in range(3):
        hvd.init()
        sums.append(f"{hvd.allreduce(torch.tensor([hvd.rank() + 1.0]), op=hvd.Sum, name='sum').item():g}")
        hvd.shutdown()
    sys.stdout.write(f"sums {' '.join(sums)}\n")
    sys.stdout.flush()


def wait_for_each_other() -> None:
    """Each rank is in a call that the other one does not make."""
    hvd.init()
    hvd.allreduce(torch.ones(4), name=f"of rank {hvd.rank()}")


def late() -> None:
    """Rank 1 makes no call for a while."""
    hvd.init()
    if hvd.rank() == 1:
        time.sleep(8)
    hvd.allreduce(torch.ones(4))


def start_only() -> None:
    hvd.init()


globals()[sys.argv[1]]()
