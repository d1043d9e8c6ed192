"""Buffers in the host's memory, which are used again."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from threading import Lock
from typing import Any

import torch

from lms._errors import HostMemoryError
from lms._sizes import format_bytes

_SMALLEST = 4096


@dataclass(slots=True)
class HostBuffer:
    """Bytes of the host. `free_after` is the event of the last copy that reads or writes them."""

    bytes: Any
    size: int
    device: Any
    free_after: Any = None


class HostMemory:
    """Takes and keeps buffers, up to a limit.

    Sizes are powers of two, which is what PyTorch's allocator of pinned memory takes in any case; so the
    account is true, and buffers fit one another's tensors.
    """

    def __init__(self, limit: int, pinned: bool) -> None:
        self.limit, self.pinned = limit, pinned
        self.used = self.peak = 0
        self._kept = 0
        self._free: defaultdict[tuple[Any, int], list[HostBuffer]] = defaultdict(list)
        self._lock = Lock()

    def take(self, nbytes: int, device: Any) -> HostBuffer:
        """A buffer for a tensor of that device, of `nbytes` or more.

        Raises:
            HostMemoryError: The limit or the machine does not allow it.
        """
        size = max(1 << (nbytes - 1).bit_length(), _SMALLEST)
        with self._lock:
            fitting = self._free[device, size]
            if fitting:
                self._kept -= size
                self._use(size)
                return fitting.pop()
            if self.used + self._kept + size > self.limit:
                self._free.clear()
                self._kept = 0
            if self.used + size > self.limit:
                raise HostMemoryError(
                    f"no host memory for a tensor of {format_bytes(nbytes)}: {format_bytes(self.used)} of "
                    f"{format_bytes(self.limit)} (host_limit) are in use; raise host_limit or limit of "
                    "lms.torch.enable(), or train with smaller batches"
                )
            buffer = HostBuffer(self._made(size, nbytes, device), size, device)
            self._use(size)
            return buffer

    def give(self, buffer: HostBuffer) -> None:
        """The buffer is free when its event has come."""
        with self._lock:
            self.used -= buffer.size
            self._kept += buffer.size
            self._free[buffer.device, buffer.size].append(buffer)

    def drop_free(self) -> None:
        """Gives back to the machine what no tensor is in."""
        with self._lock:
            self._free.clear()
            self._kept = 0

    def _use(self, size: int) -> None:
        self.used += size
        self.peak = max(self.peak, self.used)

    def _made(self, size: int, nbytes: int, device: Any) -> Any:
        pinned = self.pinned and device.type != "cpu"
        try:
            return torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=pinned)
        except (RuntimeError, MemoryError) as error:
            kind = "pinned host memory" if pinned else "host memory"
            raise HostMemoryError(
                f"the machine has no {kind} for a tensor of {format_bytes(nbytes)}, beside the "
                f"{format_bytes(self.used)} that moved tensors use: {error}; use a smaller batch, or pass "
                "pinned=False"
            ) from error
