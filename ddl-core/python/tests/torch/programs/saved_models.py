"""Trains models for three steps and saves them, or loads them and trains on for three.

    saved_models.py save|go_on alone|ddl|horovod FILES RESULTS

`alone` is a plain process, which imports neither DDL nor Horovod. Each rank takes its part of a batch. The
weights after the last step go to RESULTS, by optimizer.
"""

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

PHASE, BY, FILES, RESULTS = sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4])
RANK, SIZE = 0, 1
hvd: Any = None
if BY == "ddl":
    import torch.distributed as dist

    dist.init_process_group("ddl")
    RANK, SIZE = dist.get_rank(), dist.get_world_size()
elif BY == "horovod":
    hvd = importlib.import_module("horovod.torch")
    hvd.init()
    RANK, SIZE = hvd.rank(), hvd.size()
assert BY == "alone" or SIZE == 2
STEPS = 3
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "SGD": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    **{name: {} for name in ("Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam")},
    **{name: {} for name in ("ASGD", "Rprop")},
}
generator = torch.Generator().manual_seed(1)
X = torch.randn(2 * STEPS, 16, 4, dtype=torch.float64, generator=generator)
Y = torch.randn(2 * STEPS, 16, 2, dtype=torch.float64, generator=generator)


def trained(name: str) -> nn.Module:
    """Trains a model by an optimizer; from the file of the first phase in the second."""
    torch.manual_seed(5)
    plain = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)).double()
    optimizer = getattr(torch.optim, name)(plain.parameters(), lr=0.05, **OPTIMIZERS[name])
    if PHASE == "go_on":
        saved = torch.load(FILES / f"{name}.pt")
        plain.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
    model = plain
    if BY == "ddl":
        model = nn.parallel.DistributedDataParallel(plain)
    elif BY == "horovod":
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=plain.named_parameters())
        hvd.broadcast_parameters(plain.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    first = STEPS if PHASE == "go_on" else 0
    for step in range(first, first + STEPS):
        optimizer.zero_grad()
        (model(X[step, RANK::SIZE]) - Y[step, RANK::SIZE]).square().mean().backward()
        optimizer.step()
    if PHASE == "save" and RANK == 0:
        saved = {"model": plain.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(saved, FILES / f"{name}.pt")
    return plain


arrays = {}
for optimizer_name in OPTIMIZERS:
    for number, parameter in enumerate(trained(optimizer_name).parameters()):
        arrays[f"{optimizer_name}/{number}"] = parameter.detach().numpy()
np.savez(RESULTS / f"{PHASE}-{BY}-rank{RANK}.npz", **arrays)
if BY == "ddl":
    dist.destroy_process_group()
