"""The same parameters and optimizer state on all ranks."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.distributed as distributed

from ddl.torch import _groups


def _broadcast(tensors: Iterable[Any], root: int) -> None:
    options = distributed.BroadcastOptions()
    options.rootRank = root
    group = _groups.world()
    for work in [group.broadcast([tensor], options) for tensor in tensors]:
        work.wait()


def _broadcast_bytes(data: bytes | None, root: int) -> bytes:
    """The root's data, which is not empty; others pass None."""
    length = torch.tensor([len(data or b"")])
    _broadcast([length], root)
    sent = torch.empty(int(length), dtype=torch.uint8)
    if data is not None:
        sent = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    _broadcast([sent], root)
    return bytes(sent.numpy())


def _all_agree(error: str | None) -> None:
    """Raises on all ranks where one of them has an error."""
    group = _groups.world()
    count = torch.tensor([0 if error is None else group.rank() + 1])
    options = distributed.AllreduceOptions()
    options.reduceOp = distributed.ReduceOp.MAX
    group.allreduce([count], options).wait()
    if int(count) == 0:
        return
    raise ValueError(error or f"rank {int(count) - 1} has other parameters than the root; see its output")


def _named(parameters: Any) -> dict[str, Any]:
    if isinstance(parameters, torch.nn.Module):
        parameters = parameters.state_dict(keep_vars=True)
    items = parameters.items() if isinstance(parameters, Mapping) else parameters
    return {name: value for name, value in items if isinstance(value, torch.Tensor)}


def broadcast_parameters(parameters: Any, root: int = 0) -> None:
    """Overwrites parameters and buffers by those of rank root. Collective over all ranks.

    DistributedDataParallel does so by itself; loops without it need this once, before the first step.

    Args:
        parameters: A module, its state_dict() or its named_parameters().
        root: The rank whose values are taken.

    Raises:
        ValueError: The names, shapes or types differ between ranks; the text names one that does.
        DistBackendError: A rank is missing, or made another call.
    """
    named = _named(parameters)
    mine = {name: [list(value.shape), str(value.dtype)] for name, value in named.items()}
    rank = _groups.world().rank()
    text = _broadcast_bytes(json.dumps(mine).encode() if rank == root else None, root)
    theirs: dict[str, Any] = json.loads(text)
    error = None
    for name in [*theirs, *(name for name in mine if name not in theirs)]:
        if mine.get(name) == theirs.get(name):
            continue
        own_text, root_text = (
            f"{side[name][1]} of shape {side[name][0]}" if name in side else "no such parameter"
            for side in (mine, theirs)
        )
        error = (
            f"{name}: {own_text} on rank {rank}, {root_text} on rank {root}; in broadcast_parameters; "
            "build the same model on all ranks"
        )
        break
    _all_agree(error)
    with torch.no_grad():
        # in the root's order, whatever order this rank has them in
        _broadcast([named[name].detach() for name in theirs], root)


def broadcast_optimizer_state(optimizer: Any, root: int = 0) -> None:
    """Gives the optimizer the state and options that rank root's has, as after loading a checkpoint there.

    Collective over all ranks. The optimizers must have been made for the same parameters.

    Args:
        optimizer: A torch.optim.Optimizer.
        root: The rank whose state is taken.
    """
    data = None
    rank = _groups.world().rank()
    if rank == root:
        buffer = io.BytesIO()
        torch.save(optimizer.state_dict(), buffer)
        data = buffer.getvalue()
    received = _broadcast_bytes(data, root)
    if rank != root:
        optimizer.load_state_dict(torch.load(io.BytesIO(received), weights_only=True))
