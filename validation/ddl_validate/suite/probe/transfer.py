"""What passes between two ranks, as one of them sees it: the latency, and the rate in each direction.

Every wait has an end: a rank whose partner does not answer gives up. Its messages are then still on the way,
so that their memory must stay, and MPI cannot be finished in order.
"""

from __future__ import annotations

import array
import time
from collections.abc import Callable
from typing import Any, ClassVar

from mpi4py import MPI

KIB, MIB = 1 << 10, 1 << 20
_LEAD = 256 * KIB  # not counted: full buffers of the network take these bytes at once
_MESSAGE = 4 * MIB
_IN_FLIGHT = 8
_MOST = 64 << 30
_WARM_UP = 0.25  # of the time: memory becomes known to the network adapter, windows grow
_PINGS, _FIRST_PINGS = 100, 10
TAGS = 8  # of a transfer


class NoAnswer(Exception):
    """The partner did not answer in time."""


class Transfer:
    """Between this rank and `partner`. first: this one sends first. tag: the first of TAGS that nothing else
    uses. seconds: for both directions. limit: then it gives up.
    """

    abandoned: ClassVar[list[Any]] = []
    moved: ClassVar[int] = 0  # bytes of this process, both ways

    def __init__(self, partner: int, first: bool, tag: int, seconds: float, limit: float) -> None:
        self.comm, self.partner, self.first = MPI.COMM_WORLD, partner, first
        self.ping, self.lead, self.bulk, self.news = range(tag, tag + 4)
        self.seconds = seconds
        self.end = time.monotonic() + limit
        self.memory = bytearray(_MESSAGE * _IN_FLIGHT)
        self.small = bytearray(8)

    def both_ways(self) -> tuple[float, float, float]:
        """Bytes a second that this rank sends and receives, and the seconds of a small message. NoAnswer."""
        latency = self._latency()
        if self.first:
            sends, receives = self._send(), self._receive()
        else:
            receives, sends = self._receive(), self._send()
        return sends, receives, latency

    # ---- small messages

    def _latency(self) -> float:
        """Half of a round trip: of those that nothing held up, the tenth of them all that were fastest."""
        times = []
        for _ in range(_FIRST_PINGS + _PINGS):
            start = time.perf_counter()
            if self.first:
                self._wait([self.comm.Isend(self.small, self.partner, self.ping)])
                self._wait([self.comm.Irecv(self.small, self.partner, self.ping)])
            else:
                self._wait([self.comm.Irecv(self.small, self.partner, self.ping)])
                self._wait([self.comm.Isend(self.small, self.partner, self.ping)])
            times.append((time.perf_counter() - start) / 2)
        return sorted(times[_FIRST_PINGS:])[_PINGS // 10]

    # ---- large ones

    def _send(self) -> float:
        """Send until the receiver has seen enough; the rate that it measured."""
        size = _LEAD
        while True:
            lead = self.comm.Isend(memoryview(self.memory)[:_LEAD], self.partner, self.lead)
            self._stream(size, lambda part, n: self.comm.Isend(part[:n], self.partner, self.bulk), [lead])
            rate, following = self._news()
            if not following:
                return rate
            size = int(following)

    def _receive(self) -> float:
        size, received, spent = _LEAD, 0, 0.0
        start = time.perf_counter()
        while True:
            lead = self.comm.Irecv(memoryview(self.memory)[:_LEAD], self.partner, self.lead)
            self._wait([lead])
            stream_start = time.perf_counter()
            self._stream(size, lambda part, n: self.comm.Irecv(part[:n], self.partner, self.bulk), [])
            received += size
            spent += max(time.perf_counter() - stream_start, 1e-9)
            rate = received / spent
            passed = time.perf_counter() - start
            following = self._following(size, rate, passed)
            if passed < self.seconds / 2 * _WARM_UP:
                received, spent = 0, 0.0
            self._wait([self.comm.Isend(array.array("d", [rate, following]), self.partner, self.news)])
            if not following:
                return rate
            size = following

    def _following(self, size: int, rate: float, passed: float) -> int:
        """The size of the next part; 0 when the time is over: then those who measure beside this rank, on
        links in common, are through as well.
        """
        each = self.seconds / 2
        remaining = each - passed
        if remaining < each / 8:
            return 0
        # what fits into the rest, but not too much on the strength of a short part
        return int(max(_LEAD, min(16 * size, rate * remaining * 0.8, _MOST)))

    def _stream(
        self, size: int, post: Callable[[memoryview, int], MPI.Request], also: list[MPI.Request]
    ) -> None:
        """Post `size` bytes in messages of which a few are under way at any time, each with memory of its
        own.
        """
        parts = [memoryview(self.memory)[i * _MESSAGE : (i + 1) * _MESSAGE] for i in range(_IN_FLIGHT)]
        Transfer.moved += size
        free = list(range(_IN_FLIGHT))
        flying: list[tuple[int, MPI.Request]] = []
        remaining = size
        while remaining or flying:
            while remaining and free:
                slot, number = free.pop(), min(remaining, _MESSAGE)
                flying.append((slot, post(parts[slot], number)))
                remaining -= number
            done = MPI.Request.Testsome([request for _, request in flying]) or []
            free += [flying[index][0] for index in done]
            flying = [request for index, request in enumerate(flying) if index not in done]
            if time.monotonic() > self.end:
                self._give_up([request for _, request in flying] + also)
        self._wait(also)

    def _news(self) -> tuple[float, float]:
        values = array.array("d", [0.0, 0.0])
        self._wait([self.comm.Irecv(values, self.partner, self.news)])
        return values[0], values[1]

    def _wait(self, requests: list[MPI.Request]) -> None:
        while not MPI.Request.Testall(requests):
            if time.monotonic() > self.end:
                self._give_up(requests)

    def _give_up(self, requests: list[MPI.Request]) -> None:
        self.abandoned.append((self.memory, self.small, requests))
        raise NoAnswer
