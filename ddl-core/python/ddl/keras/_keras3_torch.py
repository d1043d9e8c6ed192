"""Keras 3 on PyTorch: its gradients are exchanged by DDL's backend of torch.distributed.

No process group is needed, and none is made: the calls go to DDL's world, beside those that the script has.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as distributed

import ddl
from ddl import _agreement


class _Exchange:
    def __init__(self) -> None:
        self._synchronised: weakref.WeakSet[Any] = weakref.WeakSet()

    def distributed(self) -> bool:
        return bool(ddl.is_initialized()) and ddl.size() > 1

    def reduce(self, pairs: Sequence[tuple[Any, Any]]) -> list[Any]:
        return list(_uncompiled_average([gradient for gradient, _ in pairs]))

    def synchronise(
        self, optimizer: Any, pairs: Sequence[tuple[Any, Any]], build: Callable[[], Sequence[Any]]
    ) -> None:
        if optimizer not in self._synchronised:
            self._synchronised.add(optimizer)
            _uncompiled_start(pairs, build)


def _average(gradients: Sequence[Any]) -> list[Any]:
    from ddl.torch import _groups

    by_kind: dict[tuple[Any, Any], list[Any]] = {}
    averaged: list[Any] = []
    with torch.no_grad():
        for gradient in gradients:
            if gradient is None:
                averaged.append(None)
                continue
            value = gradient.to_dense() if gradient.layout == torch.sparse_coo else gradient.detach()
            # Summed where it is; elements that share memory, as in an expanded tensor, would be summed twice.
            value = value.contiguous()
            averaged.append(value)
            by_kind.setdefault((value.dtype, value.device), []).append(value)
        options = distributed.AllreduceCoalescedOptions()
        options.reduceOp = distributed.ReduceOp.AVG
        group = _groups.world()
        for work in [group.allreduce_coalesced(same, options) for same in by_kind.values()]:
            work.wait()
    return averaged


def _start_alike(pairs: Sequence[tuple[Any, Any]], build: Callable[[], Sequence[Any]]) -> None:
    names = [str(getattr(variable, "path", None) or variable.name) for _, variable in pairs]
    kinds = ["no gradient" if gradient is None else "a gradient" for gradient, _ in pairs]
    remedy = " (for one that a rank does not need, a tensor of zeros)"
    error = _agreement.difference(names, kinds, "the first update of an optimizer", remedy)
    if error is not None:
        raise ddl.DDLError(error, 7)
    broadcast([variable for _, variable in pairs] + list(build()))


# torch.compile, of a training step around them, leaves them as they are.
_uncompiled_average: Callable[..., list[Any]] = torch.compiler.disable(_average)
_uncompiled_start: Callable[..., None] = torch.compiler.disable(_start_alike)


def broadcast(variables: Sequence[Any], root: int = 0) -> None:
    """Gives all ranks rank root's values of Keras variables. Collective.

    Raises:
        ValueError: The variables differ between the ranks; names one that does.
    """
    from ddl.torch import broadcast_parameters

    distinct: dict[int, Any] = {id(variable): variable for variable in variables}
    named = {f"{i}: {getattr(v, 'path', None) or v.name}": v.value for i, v in enumerate(distinct.values())}
    broadcast_parameters(named, root)


def exchange() -> _Exchange:
    """What `_keras3` needs of this backend."""
    return _Exchange()
