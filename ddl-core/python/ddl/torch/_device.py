"""The device of a rank."""

from __future__ import annotations

import torch

import ddl
from ddl import _local_gpu


def local_device(kind: str | None = None) -> torch.device:
    """What this rank computes on; a GPU becomes torch's current one.

    Call it before tensors are made on a GPU: DDL takes those of one GPU a rank.

    Args:
        kind: "cpu" or "gpu"; None: a GPU where torch sees one.

    Raises:
        ValueError: Another word, or "gpu" where torch sees none.
    """
    if kind not in (None, "cpu", "gpu"):
        raise ValueError(f"no device is called {kind!r}; in ddl.torch.local_device; pass 'cpu' or 'gpu'")
    count = torch.cuda.device_count() if kind != "cpu" else 0
    if count == 0:
        if kind == "gpu":
            raise ValueError(
                f"torch {torch.__version__} sees no GPU; in ddl.torch.local_device; install the "
                "CUDA variant, look at CUDA_VISIBLE_DEVICES, or pass 'cpu'"
            )
        return torch.device("cpu")
    ddl.init()
    device = torch.device("cuda", _local_gpu.number(count))
    torch.cuda.set_device(device)
    return device
