"""How many bytes a second each host copies in its memory, with all its cores at work.

Each rank copies, by the C library's memcpy, between two blocks that it has touched first, so that they lie in
the memory next to its core; together they are much larger than the caches. Bytes are counted once, although
each is read and written.
"""

from __future__ import annotations

import ctypes
import re
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..attribution import shortfalls
from .elapsed import Elapsed

if TYPE_CHECKING:
    from .world import World

_MIB = 1 << 20
_LEAST, _MOST = 16 * _MIB, 256 * _MIB  # of a block
_CACHES = 4  # blocks of all ranks, over all last caches
_FREE = 4  # blocks take this part of the memory that is free
_LEAST_ROUNDS, _MOST_ROUNDS = 2, 6
# Bytes a second of a channel: JEDEC's DDR3-800, DDR4-1600, DDR5-3200.
_SLOWEST = {"DDR3": 6.4e9, "DDR4": 12.8e9, "DDR5": 25.6e9}
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


def peak(edac: Path = Path("/sys/devices/system/edac/mc")) -> float | None:
    """Bytes a second that the populated channels carry at the lowest speed of their type: not more than they
    have. None where no driver tells them to ordinary users.
    """
    channels = {}
    for module in edac.glob("mc*/dimm*"):
        try:
            match = re.search(r"channel ?([0-9]+)", (module / "dimm_location").read_text())
            kind = re.search(r"DDR[345]", (module / "dimm_mem_type").read_text())
        except OSError:
            continue
        if match and kind:
            channels[module.parent.name, match[1]] = _SLOWEST[kind[0]]
    return sum(channels.values()) or None


def block_size(caches: int, ranks: int, free: int, hosts_beside: int) -> int:
    """Bytes of a rank's block, of which it has two."""
    size = min(_MOST, max(_LEAST, _CACHES * caches // ranks))
    return max(_MIB, min(size, free // _FREE // (2 * ranks * hosts_beside)))


def _free_memory(lines: Iterable[str]) -> int:
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return _LEAST


def common_block(world: World) -> int:
    """Bytes of each rank's blocks, on all hosts the same: blocks of unlike size would be compared."""
    beside = world.machines.count(world.machines[world.host])
    with open("/proc/meminfo") as meminfo:
        size = block_size(last_caches(), world.each, _free_memory(meminfo), beside)
    sizes = world.collect(size)
    return int(world.tell(min(sizes) if sizes else None))


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
    size = common_block(world)
    peaks = world.collect(peak())

    def rates(rounds: list[list[Any]]) -> list[float]:
        best = [max(samples) for samples in rounds]
        return [sum(best[host * world.each : (host + 1) * world.each]) for host in range(world.hosts)]

    def again(rounds: list[list[Any]]) -> bool:
        named = {str(number): rate for number, rate in enumerate(rates(rounds))}
        return bool(shortfalls(named, settings.tolerance))

    copying = Copying(size, settings.seconds, world.shared)
    rounds = world.in_rounds(copying.measure, again, _LEAST_ROUNDS, _MOST_ROUNDS)
    if world.rank == 0:
        result = {"hosts": rates(rounds), "block": size, "rounds": len(rounds[0])}
        world.print_result({**result, "peaks": (peaks or [])[:: world.each]})
    return 0


if __name__ == "__main__":
    sys.exit(main())
