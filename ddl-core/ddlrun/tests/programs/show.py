"""Prints what a rank is and has: one line, rank first. No MPI library is needed."""

import os
import sys

rank = os.environ["OMPI_COMM_WORLD_RANK"]
size = os.environ["OMPI_COMM_WORLD_SIZE"]
cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
yields = os.environ.get("OMPI_MCA_mpi_yield_when_idle", "0")  # noqa: SIM112
print(
    f"{rank} of {size} on {os.uname().nodename} cores {cores} yield {yields} python {sys.executable} "
    f"options {os.environ.get('DDL_OPTIONS')}",
    flush=True,
)
