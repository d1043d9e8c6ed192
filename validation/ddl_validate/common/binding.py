"""Which cores a rank runs on, for timing programs in Python: as programs/binding.c does for those in C."""

from __future__ import annotations

import os
from pathlib import Path

PLACES = "DDL_BENCH_PLACES"


def bind(rank: int) -> None:
    """Bind this process to the cores that DDL_BENCH_PLACES gives to its rank, with all its threads."""
    places = os.environ.get(PLACES)
    if not places:
        return
    index, ranks = map(int, places.split(",")[rank].split("/"))
    cores = sorted(
        os.sched_getaffinity(0),
        key=lambda core: (_place(core, "physical_package_id"), _place(core, "core_id"), core),
    )
    if ranks > len(cores):
        return
    share = cores[index * len(cores) // ranks : (index + 1) * len(cores) // ranks]
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), share)


def _place(core: int, name: str) -> int:
    """A number in a file of a core's folder in /sys; 0 where it is not there."""
    try:
        return int(Path(f"/sys/devices/system/cpu/cpu{core}/topology/{name}").read_text())
    except (OSError, ValueError):
        return 0


def core_list() -> str:
    """The cores that this process may run on, as ranges: 0-3,8."""
    ranges: list[list[int]] = []
    for core in sorted(os.sched_getaffinity(0)):
        if ranges and ranges[-1][1] == core - 1:
            ranges[-1][1] = core
        else:
            ranges.append([core, core])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
