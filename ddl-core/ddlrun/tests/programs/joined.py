"""Ranks that really talk: prints the sum of all ranks."""

from mpi4py import MPI

world = MPI.COMM_WORLD
print(f"{world.rank} on {MPI.Get_processor_name()} sum {world.allreduce(world.rank)}", flush=True)
