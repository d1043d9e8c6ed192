"""Calls take their place among what is put on streams: nobody waits on the host, and the bytes are right."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from ..arithmetic import sum_of_whole_numbers, whole_numbers
from ..ddl_library import HOST, MISMATCH, Refused, Work
from .session import Session

COUNT, CALLS = 100_000, 6
#: Copies before the one that counts, so that a call which does not wait for the stream comes long before it.
STALE = 50


def run(session: Session, settings: dict[str, Any]) -> dict[str, Any]:
    wrong: list[str] = []
    _call_after_copies(session, wrong)
    _started_calls(session, wrong)
    _mismatch(session, wrong)
    return {"cases": CALLS + 2, "wrong": wrong}


def _call_after_copies(session: Session, wrong: list[str]) -> None:
    """The buffer is written many times on the stream; the call that follows must see the last copy."""
    device, ddl, stream = session.device, session.ddl, session.stream
    buffer = device.allocate(4 * COUNT)
    host = device.pinned(8 * COUNT).view(np.float32)
    host[:COUNT], host[COUNT:] = -1, whole_numbers(ddl.rank, 0, COUNT)
    work = Work("all-reduce", "float32", buffers=[(buffer.address, COUNT)])
    # the first call of all prepares much, and the copies would be done meanwhile
    ddl.call(work, stream.handle)
    ddl.barrier()
    for _ in range(STALE):
        stream.to_device(buffer.address, host[:COUNT])
    stream.to_device(buffer.address, host[COUNT:])
    ddl.call(work, stream.handle)
    if (
        session.download(buffer.address, 4 * COUNT).view(np.float32)
        != sum_of_whole_numbers(ddl.size, 0, COUNT)
    ).any():
        wrong.append("a call on a stream did not see what a copy before it had brought")
    buffer.free()


def _started_calls(session: Session, wrong: list[str]) -> None:
    """Several calls under way at once; a second stream waits for each, and takes the result to the host."""
    device, ddl, stream = session.device, session.ddl, session.stream
    taking = device.stream()
    buffers = [device.allocate(4 * COUNT) for _ in range(CALLS)]
    host = [device.pinned(4 * COUNT).view(np.float32) for _ in range(CALLS)]
    results = [device.pinned(4 * COUNT).view(np.float32) for _ in range(CALLS)]
    handles = []
    for number, buffer in enumerate(buffers):
        host[number][:] = whole_numbers(ddl.rank, number, COUNT)
        stream.to_device(buffer.address, host[number])
        work = Work("all-reduce", "float32", buffers=[(buffer.address, COUNT)], name=f"started {number}")
        handles.append(ddl.start(work, stream.handle, priority=number))
    for number, buffer in enumerate(buffers):
        ddl.stream_wait(handles[number], taking.handle)
        taking.to_host(results[number], buffer.address)
    taking.synchronize()
    for number in range(CALLS):
        if (results[number] != sum_of_whole_numbers(ddl.size, number, COUNT)).any():
            wrong.append(f"a stream that waits for started call {number} went on before its result was there")
    for handle in handles:
        ddl.wait(handle)
    for buffer in buffers:
        buffer.free()
    taking.free()


def _mismatch(session: Session, wrong: list[str]) -> None:
    """The last call: one rank's buffer lies in the host's memory. An error on every rank, not a hang."""
    ddl = session.ddl
    if ddl.size < 2:
        return
    buffer = session.device.allocate(64)
    host_buffer = (ctypes.c_float * 16)()
    address, memory = (ctypes.addressof(host_buffer), HOST) if ddl.rank == 0 else (buffer.address, 1)
    try:
        ddl.call(Work("all-reduce", "float32", buffers=[(address, 16)], memory=memory))
    except Refused as refused:
        if refused.code != MISMATCH:
            wrong.append(f"host memory on one rank and a GPU's on another: {refused}")
    else:
        wrong.append("host memory on one rank and a GPU's on another was no error")
