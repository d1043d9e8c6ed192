"""The ranks of a probe: waits with a limit, what rank 0 collects and tells, turns of hosts on one machine.

MPI's own waits take a core each and have no end. Here a rank that waits for its turn sleeps, and one that
waits for too long says for what and ends the job.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from mpi4py import MPI

from .outside import boot

_PAUSE_SECONDS = 0.0005
_VALUES, _NEWS = 1, 2  # tags
FIRST_FREE_TAG = 16


class World:
    """All ranks. Hosts are numbered in the order of their ranks, of which each has `each`. limit: seconds
    that any of them waits for the others.
    """

    def __init__(self, each: int, limit: float) -> None:
        self.comm = MPI.COMM_WORLD
        self.rank: int = self.comm.Get_rank()
        self.size: int = self.comm.Get_size()
        if self.size % each:
            self.fail(f"{self.size} ranks are not {each} on each host")
        self.each, self.limit = each, limit
        self.hosts: int = self.size // each
        self.host = self.rank // each
        self._posted: list[MPI.Request] = []
        self.machines = self._machines()

    def _machines(self) -> list[int]:
        """Number of the machine of each host: emulated hosts may share one."""
        listed = self.collect(boot() or f"host {self.host}")
        numbers: dict[str, int] = {}
        machines = None
        if listed is not None:
            machines = [numbers.setdefault(text, len(numbers)) for text in listed[:: self.each]]
        return list(self.tell(machines))

    @property
    def shared(self) -> bool:
        """Do hosts share a machine?"""
        return len(set(self.machines)) < self.hosts

    @property
    def turns(self) -> list[list[int]]:
        """Hosts that may be busy at the same time: one of each machine."""
        seen: dict[int, int] = defaultdict(int)
        turns: list[list[int]] = []
        for host, machine in enumerate(self.machines):
            if seen[machine] == len(turns):
                turns.append([])
            turns[seen[machine]].append(host)
            seen[machine] += 1
        return turns

    # ---- waits

    def fail(self, problem: str) -> NoReturn:
        """End the job."""
        print(f"rank {MPI.COMM_WORLD.Get_rank()}: {problem}", file=sys.stderr, flush=True)
        MPI.COMM_WORLD.Abort(1)
        raise SystemExit(1)

    def receive(self, source: int, tag: int, end: float) -> Any:
        """The next message; None when the time is up."""
        while (message := self.comm.improbe(source, tag)) is None:
            if time.monotonic() > end:
                return None
            time.sleep(_PAUSE_SECONDS)
        return message.recv()

    def _sent(self, requests: Sequence[MPI.Request], message: str) -> None:
        end = time.monotonic() + self.limit
        while not MPI.Request.Testall(list(requests)):
            if time.monotonic() > end:
                self.fail(f"{message} was not received within {self.limit:.0f} s")
            time.sleep(_PAUSE_SECONDS)

    def post(self, value: Any, rank: int, tag: int) -> None:
        """Send a small message and do not wait; its memory stays for as long as it is under way."""
        self._posted = [request for request in self._posted if not request.Test()]
        self._posted.append(self.comm.isend(value, rank, tag))

    def deliver(self, value: Any, rank: int, tag: int, message: str) -> None:
        """Send it, and wait until it is received."""
        self._sent([self.comm.isend(value, rank, tag)], message)

    # ---- rank 0 and the others

    def collect(self, value: Any) -> list[Any] | None:
        """On rank 0, the value of each rank; None on the others."""
        if self.rank:
            self.deliver((value,), 0, _VALUES, "its value")
            return None
        end = time.monotonic() + self.limit
        values = [value]
        for rank in range(1, self.size):
            got = self.receive(rank, _VALUES, end)
            if got is None:
                self.fail(f"rank {rank} has sent nothing within {self.limit:.0f} s")
            values.append(got[0])
        return values

    def tell(self, value: Any) -> Any:
        """Rank 0's value, on every rank."""
        if self.rank == 0:
            self._sent([self.comm.isend((value,), rank, _NEWS) for rank in range(1, self.size)], "its news")
            return value
        got = self.receive(0, _NEWS, time.monotonic() + self.limit)
        if got is None:
            self.fail(f"rank 0 has sent nothing within {self.limit:.0f} s")
        return got[0]

    def meet(self) -> None:
        """Return when all ranks are here."""
        request = self.comm.Ibarrier()
        self._sent([request], "that it is here")

    # ---- measuring

    def in_turns(self, measure: Callable[[], Any]) -> list[Any] | None:
        """What each rank measured, on rank 0. All ranks of a host measure at the same time."""
        mine = None
        for turn in self.turns:
            self.meet()
            if self.host in turn:
                mine = measure()
        return self.collect(mine)

    def in_rounds(
        self, measure: Callable[[], Any], again: Callable[[list[list[Any]]], bool], least: int, most: int
    ) -> list[list[Any]]:
        """On rank 0, what each rank measured in each round; empty lists on the others. There are `least`
        rounds, and up to `most` while `again`, asked by rank 0, says so.
        """
        rounds: list[list[Any]] = [[] for _ in range(self.size)]
        for number in range(most):
            values = self.in_turns(measure)
            go_on = number + 1 < least
            if values is not None:
                for samples, value in zip(rounds, values, strict=True):
                    samples.append(value)
                go_on = go_on or again(rounds)
            if not self.tell(go_on):
                break
        return rounds

    def print_result(self, result: dict[str, Any]) -> None:
        """The last line of rank 0's output."""
        if self.rank == 0:
            print(json.dumps(result), flush=True)


def options(text: str | None) -> argparse.ArgumentParser:
    """The options of every probe."""
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("--ranks", type=int, default=1, help="on each host")
    parser.add_argument("--seconds", type=float, default=0.3, help="of each measurement")
    parser.add_argument(
        "--tolerance", type=float, default=0.2, help="what falls short by more is measured again"
    )
    parser.add_argument("--limit", type=float, default=60.0, help="seconds that a rank waits for the others")
    return parser
