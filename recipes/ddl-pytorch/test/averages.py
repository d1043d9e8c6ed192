"""Two ranks: DistributedDataParallel averages a gradient, with no import but torch's."""

import sys

import torch
import torch.distributed as dist

dist.init_process_group("ddl")
assert dist.get_world_size() == 2
model = torch.nn.Linear(1, 1, bias=False)
parallel = torch.nn.parallel.DistributedDataParallel(model)
# gradients 1 and 3, on average 2
parallel(torch.full((1, 1), 1.0 + 2 * dist.get_rank())).sum().backward()
assert model.weight.grad.item() == 2, model.weight.grad
dist.destroy_process_group()
# one write, so that the other rank's line does not get in between
sys.stdout.write("averaged\n")
