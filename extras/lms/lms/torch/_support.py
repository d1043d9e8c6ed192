"""Switches Large Model Support on and off: hooks of autograd, a ledger for every device."""

from __future__ import annotations

import dataclasses
from threading import Lock
from types import TracebackType
from typing import Any

import torch

from lms._errors import LmsError
from lms._sizes import default_host_limit, machine_memory, parse_bytes
from lms.torch._copies import copies_for
from lms.torch._host_memory import HostMemory
from lms.torch._saved import Handle, Ledger, Stats, VersionGuard

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_SUMS = tuple(
    field.name for field in dataclasses.fields(Stats) if field.name not in ("largest", "host", "peak_host")
)


def device_memory(device: Any) -> int:
    """Bytes of a device's memory; of the processor, the machine's."""
    if device.type == "cpu":
        return machine_memory()
    try:
        return int(torch.accelerator.get_memory_info(device)[1])
    except (AttributeError, RuntimeError) as error:
        raise LmsError(
            f"{device} does not tell how much memory it has ({error}): give limit in bytes, like '12GB'"
        ) from error


class Support:
    """What lms.torch.enable() returns; as a context manager it disables at its end.

    Tensors that were saved while it was enabled stay in its ledger until autograd drops them.
    """

    def __init__(
        self,
        limit: int | float | str,
        min_size: int | str,
        pinned: bool,
        prefetch: int,
        host_limit: int | str | None,
        device: str | None,
    ) -> None:
        self._limit = _checked_limit(limit)
        self._min_size = parse_bytes(min_size, "min_size")
        if prefetch < 0:
            raise ValueError(f"prefetch is {prefetch}: give 0 or the number of tensors to fetch early")
        self._prefetch = prefetch
        if device is None:
            accelerator = torch.accelerator.current_accelerator(check_available=True)
            device = "cpu" if accelerator is None else accelerator.type
        self._type = torch.device(device).type
        host = default_host_limit() if host_limit is None else parse_bytes(host_limit, "host_limit")
        self._memory = HostMemory(host, pinned)
        self._ledgers: dict[Any, Ledger] = {}
        self._lock = Lock()
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)
        self.enabled = False

    def __enter__(self) -> Support:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.disable()

    def enable(self) -> None:
        self._hooks.__enter__()
        self.enabled = True

    def disable(self) -> None:
        """Tensors that are saved from now on stay where they are."""
        if not self.enabled:
            return
        # Others' hooks may lie above these, which can only be taken off in order: then these do nothing.
        self.enabled = False
        top = torch._C._autograd._top_saved_tensors_default_hooks(False)
        if top is not None and top[0] == self._pack:
            self._hooks.__exit__()

    @property
    def limit(self) -> int | float:
        """Bytes on each device, or the part of its memory; a new one holds from the next saved tensor on."""
        return self._limit

    @limit.setter
    def limit(self, limit: int | float | str) -> None:
        self._limit = _checked_limit(limit)
        with self._lock:
            for device, ledger in self._ledgers.items():
                ledger.limit = ledger.stats.limit = self._bytes_on(device)

    def stats(self, device: str | torch.device | None = None) -> Stats:
        """Statistics of one device, or the sums over all of them."""
        if device is not None:
            indexed = _with_index(torch.device(device))
            ledger = self._ledgers.get(indexed)
            return Stats(self._bytes_on(indexed)) if ledger is None else dataclasses.replace(ledger.settle())
        of_each = [ledger.settle() for ledger in self._ledgers.values()]
        total = Stats(host=self._memory.used, peak_host=self._memory.peak)
        for stats in of_each:
            for name in _SUMS:
                setattr(total, name, getattr(total, name) + getattr(stats, name))
            total.largest = max(total.largest, stats.largest)
        if not of_each:
            total.limit = self._bytes_on(_with_index(torch.device(self._type)))
        return total

    def reset_stats(self) -> None:
        for ledger in self._ledgers.values():
            ledger.reset()

    def _bytes_on(self, device: Any) -> int:
        return int(self._limit * device_memory(device)) if isinstance(self._limit, float) else self._limit

    def _ledger(self, device: Any) -> Ledger:
        ledger = self._ledgers.get(device)
        if ledger is None:
            with self._lock:
                ledger = self._ledgers.get(device)
                if ledger is None:
                    copies = copies_for(device)
                    limit = self._bytes_on(device)
                    ledger = Ledger(copies, self._memory, limit, self._min_size, self._prefetch)
                    self._ledgers[device] = ledger
        return ledger

    def _pack(self, tensor: Any) -> Handle | VersionGuard:
        if not self.enabled or tensor.device.type != self._type or not _may_move(tensor):
            return VersionGuard(tensor)
        ledger = self._ledger(tensor.device)
        return VersionGuard(tensor) if ledger.capturing() else ledger.save(tensor)

    @staticmethod
    def _unpack(handle: Handle | VersionGuard) -> Any:
        return handle.tensor()


def _may_move(tensor: Any) -> bool:
    """Whether it is a plain tensor, whose storage the program does not keep anyway."""
    if type(tensor) not in _PLAIN or tensor.layout is not torch.strided or tensor.is_quantized:
        return False
    # PyTorch had named tensors in earlier versions
    return (
        not any(getattr(tensor, "names", ()))
        and not of_leaf(tensor)
        and tensor.untyped_storage().nbytes() > 0
    )


def of_leaf(tensor: Any) -> bool:
    """Whether it is a parameter or another leaf, or a view of one: the program keeps these anyway."""
    return _is_leaf(tensor) or (tensor._base is not None and _is_leaf(tensor._base))


def _is_leaf(tensor: Any) -> bool:
    return bool(tensor.requires_grad and tensor.is_leaf)


def _with_index(device: Any) -> Any:
    if device.type == "cpu" or device.index is not None:
        return device
    return torch.device(device.type, torch.accelerator.current_device_index())


def _checked_limit(limit: int | float | str) -> int | float:
    if isinstance(limit, float):
        if not 0 < limit <= 1:
            raise ValueError(
                f"limit is {limit}: a part of the device's memory is more than 0.0 and at most 1.0"
            )
        return limit
    return parse_bytes(limit, "limit")
