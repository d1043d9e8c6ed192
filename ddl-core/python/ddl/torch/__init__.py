"""DDL in PyTorch: a backend of torch.distributed, and what a script needs beside it.

    import torch.distributed as dist

    dist.init_process_group("ddl")      # under ddlrun, mpirun, srun or torchrun
    model = torch.nn.parallel.DistributedDataParallel(model)

The backend needs no import: the package ddl-pytorch registers it at `import torch`. The functions here work
with and without a process group.
"""

from __future__ import annotations

from ddl import DDLError, finalize, init, is_initialized, local_rank, local_size, num_hosts, rank, size
from ddl.torch._data import DistributedSampler
from ddl.torch._device import local_device
from ddl.torch._state import broadcast_optimizer_state, broadcast_parameters

__all__ = [
    "DDLError",
    "DistributedSampler",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "finalize",
    "init",
    "is_initialized",
    "local_device",
    "local_rank",
    "local_size",
    "num_hosts",
    "rank",
    "size",
]
