"""How many bytes a second each host copies in its memory, with all its cores at work.

Each rank copies, by the C library's memcpy, between two blocks that it has touched first, so that they lie in
the memory next to its core; together they are much larger than the caches. Bytes are counted once, although
each is read and written.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..attribution import shortfalls
from .elapsed import Elapsed

_MIB = 1 << 20
_LEAST, _MOST = 16 * _MIB, 256 * _MIB  # of a block
_CACHES = 4  # blocks of all ranks, over all last caches
_FREE = 4  # blocks take this part of the memory that is free
_LEAST_ROUNDS, _MOST_ROUNDS = 2, 6
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def last_caches(cpus: Path = Path("/sys/devices/system/cpu")) -> int:
    """Bytes of all last-level caches of this host together; 0 where the kernel does not say."""
    sizes: dict[str, int] = {}
    for folder in cpus.glob("cpu[0-9]*/cache"):
        levels = sorted(folder.glob("index[0-9]*"))
        if not levels:
            continue
        try:
            shared = (levels[-1] / "shared_cpu_list").read_text()
            text = (levels[-1] / "size").read_text().strip()
            sizes[shared] = int(text.rstrip("KMG")) * _UNITS.get(text[-1:], 1)
        except (OSError, ValueError):
            continue
    return sum(sizes.values())


def block_size(caches: int, ranks: int, free: int, hosts_beside: int) -> int:
    """Bytes of a rank's block, of which it has two."""
    size = min(_MOST, max(_LEAST, _CACHES * caches // ranks))
    return max(_MIB, min(size, free // _FREE // (2 * ranks * hosts_beside)))


def _free_memory(lines: Iterable[str]) -> int:
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return _LEAST


class Copying:
    """The blocks of this rank."""

    def __init__(self, size: int, seconds: float, shared: bool) -> None:
        self.size, self.seconds, self.shared = size, seconds, shared
        self.source = ctypes.create_string_buffer(size)
        self.target = ctypes.create_string_buffer(size)
        # touched here, by the rank that will copy
        ctypes.memset(self.source, 1, size)
        ctypes.memset(self.target, 2, size)
        self.copy = ctypes.CDLL(None).memcpy
        self.copy.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
        self.copy.restype = ctypes.c_void_p

    def measure(self) -> float:
        copies = 0
        elapsed, end = Elapsed(self.shared), time.perf_counter() + self.seconds
        while time.perf_counter() < end or not copies:
            self.copy(self.target, self.source, self.size)
            copies += 1
        return copies * self.size / elapsed.read()["seconds"]


def main(arguments: list[str] | None = None) -> int:
    from .world import World, options

    settings = options(__doc__).parse_args(arguments)
    world = World(settings.ranks, settings.limit)
    beside = world.machines.count(world.machines[world.host])
    with open("/proc/meminfo") as meminfo:
        size = block_size(last_caches(), world.each, _free_memory(meminfo), beside)
    # blocks of unlike size would be compared with one another
    sizes = world.collect(size)
    size = world.tell(min(sizes) if sizes else None)

    def rates(rounds: list[list[Any]]) -> list[float]:
        best = [max(samples) for samples in rounds]
        return [sum(best[host * world.each : (host + 1) * world.each]) for host in range(world.hosts)]

    def again(rounds: list[list[Any]]) -> bool:
        named = {str(number): rate for number, rate in enumerate(rates(rounds))}
        return bool(shortfalls(named, settings.tolerance))

    copying = Copying(size, settings.seconds, world.shared)
    rounds = world.in_rounds(copying.measure, again, _LEAST_ROUNDS, _MOST_ROUNDS)
    if world.rank == 0:
        world.print_result({"hosts": rates(rounds), "block": size, "rounds": len(rounds[0])})
    return 0


if __name__ == "__main__":
    sys.exit(main())
