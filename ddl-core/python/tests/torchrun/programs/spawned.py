"""A script without a launcher spawns its ranks. Arguments: env, tcp, file or store; a port or a file."""

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

RANKS = 3


def run(rank: int, method: str, place: str) -> None:
    url = {"env": "env://", "tcp": f"tcp://127.0.0.1:{place}", "file": f"file://{place}"}.get(method)
    if method == "env":
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=place)
    if method == "store":
        store = dist.TCPStore("127.0.0.1", int(place), RANKS, rank == 0)
        dist.init_process_group("ddl", store=store, rank=rank, world_size=RANKS)
    else:
        dist.init_process_group("ddl", init_method=url, rank=rank, world_size=RANKS)
    tensor = torch.full((1000,), float(rank + 1))
    dist.all_reduce(tensor)
    pair = dist.new_group([0, 1])
    if rank < 2:
        dist.all_reduce(tensor, group=pair)
    print("sum", rank, tensor[0].item(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(run, args=(sys.argv[1], sys.argv[2]), nprocs=RANKS)
