"""Tensors of PyTorch that are compared between the ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

import ddl_drift

_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Tensors(ddl_drift.Weights):
    """Tensors by name."""

    def __init__(self, named: Sequence[tuple[str, Any]]) -> None:
        super().__init__(
            [tensor for _, tensor in named],
            [name for name, _ in named],
            [tensor.numel() for _, tensor in named],
            [str(tensor.dtype).removeprefix("torch.") for _, tensor in named],
        )

    def _tensor(self, index: int) -> Any:
        tensor = self.variable(index)
        return torch.zeros(0) if tensor is None else tensor.detach()

    def checksums(self, chosen: Sequence[int]) -> Sequence[int]:
        """See Weights. Summed where the tensors are, and only the sums are copied."""
        if not chosen:
            return []
        with torch.no_grad():
            sums = []
            for index in chosen:
                tensor = self._tensor(index)
                tensor = torch.view_as_real(tensor) if tensor.is_complex() else tensor
                bits = tensor.contiguous().view(-1).view(_BITS[tensor.element_size()])
                sums.append(bits.sum(dtype=torch.int64))
            return [int(total) % 2**64 for total in torch.stack([total.cpu() for total in sums]).tolist()]

    def read(self, index: int) -> np.ndarray[Any, Any]:
        """See Weights."""
        tensor = self._tensor(index)
        wide = tensor if tensor.dtype == torch.float64 else tensor.float()
        return np.asarray(wide.contiguous().view(-1).cpu().numpy())


def learning_rate(optimizer: Any) -> float | None:
    """The learning rate of an optimizer; the sum of those of its groups, where they differ."""
    groups = [] if optimizer is None else optimizer.param_groups
    rates = [float(group["lr"]) for group in groups if "lr" in group]
    if not rates:
        return None
    return rates[0] if len(set(rates)) == 1 else sum(rates)
