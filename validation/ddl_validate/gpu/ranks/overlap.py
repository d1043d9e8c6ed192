"""Whether a started call goes on beside what the device does meanwhile: seen on DDL's timeline.

Copies within the device stand for a computation: the driver alone can start them, and they keep a stream
busy. DDL writes when its calls began and ended (-timeline), this program when each copy was done.
"""

from __future__ import annotations

import time
from typing import Any

from ..ddl_library import Work
from ..driver import Event, wait_until
from .session import Session

_LIMIT_SECONDS = 60.0
_LEAST_COPIES, _MOST_COPIES = 4, 400
_REPETITIONS = 5
#: The copies last so much longer than the call, which is to be hidden behind them.
_LONGER = 3


class Copies:
    """A stream kept busy by copies within the device, with a mark after each."""

    def __init__(self, session: Session, block: int) -> None:
        device = session.device
        self.stream = device.stream()
        self._block = block
        self._source, self._target = device.allocate(block), device.allocate(block)
        self._events = [device.event() for _ in range(_MOST_COPIES)]

    def start(self, number: int) -> list[Event]:
        marks = []
        for event in self._events[:number]:
            self.stream.within(self._target.address, self._source.address, self._block)
            marks.append(event.record(self.stream))
        return marks

    def free(self) -> None:
        for event in self._events:
            event.free()
        for resource in (self.stream, self._source, self._target):
            resource.free()


def _finish(marks: list[Event], begun: float) -> list[tuple[float, float]]:
    """From when to when each copy took, by the system's clock in seconds."""
    spans = []
    for mark in marks:
        wait_until(mark.done, _LIMIT_SECONDS, "a copy within the device")
        now = time.time()
        spans.append((begun, now))
        begun = now
    return spans


def run(session: Session, settings: dict[str, Any]) -> dict[str, Any]:
    ddl, size = session.ddl, int(settings["bytes"])
    buffer = session.device.allocate(size)
    copies = Copies(session, int(settings["block"]))
    work = Work("all-reduce", "float32", buffers=[(buffer.address, size // 4)], name="overlap")

    def call_alone() -> float:
        ddl.barrier()
        begun = time.perf_counter()
        ddl.wait(ddl.start(work, session.stream.handle))
        return time.perf_counter() - begun

    def copies_alone(number: int) -> float:
        ddl.barrier()
        begun = time.perf_counter()
        _finish(copies.start(number), time.time())
        return time.perf_counter() - begun

    for _ in range(2):
        call_alone()
        copies_alone(_LEAST_COPIES)
    # ranks must agree on the number, as they copy on the same device
    call, some = ddl.highest(call_alone(), copies_alone(_LEAST_COPIES))
    number = min(max(round(_LONGER * _LEAST_COPIES * call / some), _LEAST_COPIES), _MOST_COPIES)
    rounds = []
    for _ in range(_REPETITIONS):
        call, alone = ddl.highest(call_alone(), copies_alone(number))
        ddl.barrier()
        begun, clock = time.perf_counter(), time.time()
        marks = copies.start(number)
        handle = ddl.start(work, session.stream.handle)
        spans = _finish(marks, clock)
        ddl.wait(handle)
        (both,) = ddl.highest(time.perf_counter() - begun)
        rounds.append({"call": call, "copies": alone, "together": both, "spans": spans})
    copies.free()
    buffer.free()
    return {"rounds": rounds, "copies": number, "bytes": size}
