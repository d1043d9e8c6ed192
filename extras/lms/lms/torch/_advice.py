"""How much memory a training step needs, found without running it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from lms._sizes import format_bytes, parse_bytes
from lms.torch._support import of_leaf

_STATE = {"sgd": 0, "momentum": 1, "adam": 2, "adamw": 2}


@dataclass(frozen=True)
class Advice:
    """Bytes that a step of training needs on the device."""

    parameters: int
    buffers: int
    gradients: int
    saved: int
    """What autograd keeps from the forward pass for the backward pass."""
    largest: int
    """The largest storage of it."""
    tensors: int
    """How many storages that is."""

    def limit(self, memory: int | str, optimizer: str = "adam") -> int:
        """The limit for lms.torch.enable() on a device with so much memory.

        What is left beside parameters, gradients, the optimizer's state, room for the largest operation (four
        times the largest saved storage) and a tenth of the memory for libraries.

        Raises:
            ValueError: Nothing is left.
        """
        if optimizer not in _STATE:
            raise ValueError(f"optimizer is {optimizer!r}: give one of {', '.join(_STATE)}")
        whole = parse_bytes(memory, "memory")
        fixed = self.parameters + self.buffers + self.gradients * (1 + _STATE[optimizer])
        remaining = whole - fixed - 4 * self.largest - whole // 10
        if remaining < self.largest:
            raise ValueError(
                f"{format_bytes(whole)} are not enough: parameters, gradients and the state of {optimizer} "
                f"take {format_bytes(fixed)}, and one saved tensor {format_bytes(self.largest)}; use a "
                "smaller batch, or spread the parameters over several devices"
            )
        return remaining

    def __str__(self) -> str:
        rows = {
            "parameters": self.parameters,
            "buffers": self.buffers,
            "gradients": self.gradients,
            "saved for backward": self.saved,
            "  the largest of them": self.largest,
        }
        lines = [f"{name:22} {format_bytes(size):>10}" for name, size in rows.items()]
        return "\n".join([*lines, f"{'  their number':22} {self.tensors:>10}"])


def advise(
    model: Any,
    batch: Any,
    *,
    loss: Callable[[Any], Any] | None = None,
    autocast: Any = None,
) -> Advice:
    """Counts what a step of a model keeps, on tensors that have shapes but no memory.

    Args:
        model: It may be larger than the memory of any device: build it under torch.device("meta").
        batch: A tensor, or a tuple or dict of arguments of the model; on any device, "meta" too.
        loss: Makes the loss of the model's output, where it keeps much. The output itself is counted as saved
            only if the loss saves it.
        autocast: A type, such as torch.bfloat16, for torch.autocast.

    Returns:
        The advice; print it, or ask its limit(memory).
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)

    def fake(tensor: Any) -> Any:
        empty = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cpu")
        return empty.requires_grad_(tensor.requires_grad)

    parameters, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    storages: dict[int, tuple[Any, int]] = {}

    def pack(tensor: Any) -> Any:
        if not of_leaf(tensor) and tensor.layout is torch.strided:
            storage = tensor.untyped_storage()
            # Kept, so that its address is not another's soon.
            storages[storage._cdata] = (storage, storage.nbytes())
        return tensor.detach()

    with mode, torch.enable_grad():
        named = {name: fake(tensor) for name, tensor in (parameters | buffers).items()}
        fake_batch = pytree.tree_map_only(torch.Tensor, fake, batch)
        kinds = torch.autocast("cpu", dtype=autocast or torch.bfloat16, enabled=autocast is not None)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved), kinds:
            output = torch.func.functional_call(model, named, *_arguments(fake_batch))
            if loss is not None:
                output = loss(output)
    sizes = [size for _, size in storages.values()]
    trained = [parameter for parameter in parameters.values() if parameter.requires_grad]
    return Advice(
        parameters=_total(parameters.values()),
        buffers=_total(buffers.values()),
        gradients=_total(trained),
        saved=sum(sizes),
        largest=max(sizes, default=0),
        tensors=len(sizes),
    )


def _arguments(batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(batch, Mapping):
        return (), dict(batch)
    if isinstance(batch, Sequence):
        return tuple(batch), {}
    return (batch,), {}


def _total(tensors: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
