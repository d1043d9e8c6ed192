"""Rank RANK ends in a bad way while the others wait for it: `fail.py RANK raise 0`."""

import os
import sys
import time

from mpi4py import MPI

rank, deed, number = sys.argv[1:4]
world = MPI.COMM_WORLD
print(f"rank {world.rank} is here", flush=True)
if world.rank != int(rank):
    world.barrier()
time.sleep(0.3)
if deed == "signal":
    os.kill(os.getpid(), int(number))
if deed == "raise":
    sys.stderr.write("Traceback: something is wrong\n")
    sys.stderr.flush()
    os._exit(1)
if deed == "leave":
    os._exit(0)
world.Abort(int(number))
