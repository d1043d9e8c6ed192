"""Keras 3 on PyTorch: its gradients are exchanged by DDL's backend of torch.distributed.

No process group is needed, and none is made: the calls go to DDL's world, beside those that the script has.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import ddl_drift
import numpy as np
import torch
import torch.distributed as distributed

import ddl
from ddl import _agreement, _drift


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

    def after_update(
        self, optimizer: Any, variables: Sequence[Any], learning_rate: Callable[[Any], float | None]
    ) -> None:
        if self.distributed() and _drift.enabled():
            _uncompiled_comparison(optimizer, variables, learning_rate)

    def after_local_update(self, pairs: list[tuple[Any, Any]]) -> None:
        ddl_drift.exclude(variable for _, variable in pairs)


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
    _check_start(pairs)
    broadcast([variable for _, variable in pairs] + list(build()))


def _compare(optimizer: Any, variables: Sequence[Any], learning_rate: Callable[[Any], float | None]) -> None:
    from ddl_drift.torch import Tensors

    from ddl.torch import _drift as torch_drift
    from ddl.torch import _groups

    ranks = torch_drift.GroupRanks(_groups.world())
    ranks.same_figures = _drift.DdlRanks.same_figures
    watch = ddl_drift.make_watch(optimizer, ranks, learning_rate)
    if watch.takes([id(variable) for variable in variables]):
        watch.watch(Tensors([(variable.path, variable.value) for variable in variables]))
    watch.updated()


def _check_start(pairs: Sequence[tuple[Any, Any]]) -> None:
    """Raises where the ranks' weights, of which their first gradients are, differ."""
    if not _drift.enabled():
        return
    from ddl_drift.torch import Tensors

    weights = Tensors([(variable.path, variable.value) for _, variable in pairs])
    sums = np.array(weights.checksums(range(len(pairs))), np.uint64).view(np.int64)
    excluded = np.ones(len(pairs), np.int64)
    excluded[weights.compared()] = 0
    every = ddl.all_gather(
        np.stack([sums, excluded]), name="checksums of the weights before the first update"
    )
    for index, name in enumerate(weights.names):
        differs = every[:, 0, index] != every[0, 0, index]
        if differs.any() and not every[:, 1, index].any():
            rank = int(np.argmax(differs))
            raise ddl.DDLError(
                "[ERROR DDL-1-7] the ranks begin with different weights, of which their first gradients are: "
                f"{name} (rank {rank} against rank 0); in the first update of an optimizer; train by fit, or "
                "call ddl.torch.broadcast_parameters(model) before the first batch",
                7,
            )


# torch.compile, of a training step around them, leaves them as they are.
_uncompiled_average: Callable[..., list[Any]] = torch.compiler.disable(_average)
_uncompiled_start: Callable[..., None] = torch.compiler.disable(_start_alike)
_uncompiled_comparison: Callable[..., None] = torch.compiler.disable(_compare)


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
