"""A rendezvous of torch by env://, and the address that it took."""

import os

import torch
import torch.distributed as dist

dist.init_process_group("ddl")
total = torch.ones(1)
dist.all_reduce(total)
print(
    f"{dist.get_rank()} on {os.uname().nodename} by {os.environ['MASTER_ADDR']} sum {int(total)}", flush=True
)
dist.destroy_process_group()
