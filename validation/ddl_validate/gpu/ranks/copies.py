"""What copies reach by themselves: between host and device, within the device, and between processes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ..driver import Stream, close_ipc, open_ipc, wait_until
from ..errors import GpuError
from .session import Session

_LIMIT_SECONDS = 60.0
_BLOCKS = 4


def _median(
    actions: list[Callable[[], None]], streams: list[Stream], repetitions: int, count: int = 1
) -> float:
    """Seconds of what actions put on streams, so many times in a row, after two that do not count."""
    times = []
    for _ in range(2 + repetitions):
        begun = time.perf_counter()
        for action in actions * count:
            action()
        wait_until(lambda: all(stream.done() for stream in streams), _LIMIT_SECONDS, "a copy")
        times.append(time.perf_counter() - begun)
    return statistics.median(times[2:])


class Limits:
    """Copies of large blocks of pinned memory, several in a row, so that their start does not count."""

    def __init__(self, session: Session, block: int, repetitions: int) -> None:
        device = session.device
        self.session, self.block, self.repetitions = session, block, repetitions
        self._down, self._up = device.stream(), device.stream()
        self._near, self._far = device.allocate(block), device.allocate(block)
        self._read, self._written = device.pinned(block), device.pinned(block)
        pattern = np.arange(block // 8, dtype=np.int64) * 2654435761 + session.ddl.rank
        self._read[:] = pattern.view(np.uint8)

    def to_device(self) -> None:
        self._up.to_device(self._near.address, self._read)

    def to_host(self) -> None:
        self._down.to_host(self._written, self._far.address)

    def within(self) -> None:
        self._up.within(self._far.address, self._near.address, self.block)

    def rates(self) -> dict[str, float]:
        """Bytes a second; "both" is that of each direction while both are under way."""
        actions: dict[str, tuple[list[Callable[[], None]], list[Stream]]] = {
            "to_device": ([self.to_device], [self._up]),
            "to_host": ([self.to_host], [self._down]),
            # block by block, so that neither direction has a start
            "both": ([self.to_device, self.to_host], [self._up, self._down]),
            "within": ([self.within], [self._up]),
        }
        rates = {}
        for name, (copies, streams) in actions.items():
            self.session.ddl.barrier()
            seconds = _median(copies, streams, self.repetitions, _BLOCKS)
            rates[name] = _BLOCKS * self.block / seconds
        return rates

    def check(self) -> None:
        """GpuError where the copies do not bring back what was sent."""
        self._written[:] = 0
        self.to_device()
        self.within()
        self._up.to_host(self._written, self._far.address)
        self._up.synchronize()
        if (self._written != self._read).any():
            raise GpuError("copies to the device, within it and back do not give what was sent")

    def free(self) -> None:
        for resource in (self._near, self._far, self._up, self._down):
            resource.free()


def run(session: Session, settings: dict[str, Any]) -> dict[str, Any]:
    """Where several ranks run it, they copy at the same time: the rates are this rank's."""
    limits = Limits(session, int(settings["block"]), int(settings["repetitions"]))
    rates = limits.rates()
    limits.check()
    limits.free()
    return {"rates": rates, "block": settings["block"]}


def run_ipc(session: Session, settings: dict[str, Any]) -> dict[str, Any]:
    """Rank 0 opens memory of rank 1 of the same device, and copies from there."""
    block, ddl, device = int(settings["block"]), session.ddl, session.device
    block_of_rank = device.allocate(block)
    value = np.full(block, ddl.rank + 1, np.uint8)
    session.upload(block_of_rank.address, value)
    named = ddl.gather_bytes(block_of_rank.ipc_handle(), 64)
    rate = None
    if ddl.rank == 0:
        other = open_ipc(device, named[1], block)
        target = device.allocate(block)
        copies = [lambda: session.stream.within(target.address, other.address, block)]
        rate = block / _median(copies, [session.stream], int(settings["repetitions"]))
        if (session.download(target.address, block) != 2).any():
            raise GpuError("memory of another process, opened by IPC, does not hold what that one wrote")
        close_ipc(other)
        target.free()
    ddl.barrier()
    block_of_rank.free()
    return {"rate": rate, "block": block}
