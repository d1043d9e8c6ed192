"""Sizes of memory as users write and read them."""

from __future__ import annotations

import os
import re

from ddlrun.checks import probe

_UNITS = {
    "": 1,
    "B": 1,
    **{f"{letter}B": 1000**power for power, letter in enumerate("KMGT", 1)},
    **{f"{letter}IB": 1024**power for power, letter in enumerate("KMGT", 1)},
}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?)\s*([A-Za-z]*)\s*")


def parse_bytes(size: int | str, name: str = "size") -> int:
    """Bytes of 4096, "512MB" (10^6), "1.5GiB" (2^30).

    Args:
        size: A number of bytes, or a number with a unit.
        name: Of the argument, for the message of the error.
    """
    if isinstance(size, bool) or not isinstance(size, (int, str)):
        raise TypeError(f"{name} is {size!r}: give a number of bytes, or a text like '12GB'")
    if isinstance(size, int):
        if size < 0:
            raise ValueError(f"{name} is {size}: a size is not negative")
        return size
    match = _SIZE.fullmatch(size)
    if match is None or match[2].upper() not in _UNITS:
        raise ValueError(f"{name} is {size!r}: give a number and one of B, KB, MB, GB, TB, KiB, MiB, GiB")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def format_bytes(size: int) -> str:
    """For example 1.50 GB; powers of ten, as in parse_bytes."""
    value = float(size)
    for unit in ("B", "KB", "MB", "GB"):
        if abs(value) < 999.5:
            return f"{value:.0f} B" if unit == "B" else f"{value:.2f} {unit}"
        value /= 1000
    return f"{value:.2f} TB"


def machine_memory() -> int:
    """Bytes of this machine's memory, or of what its container or job may have of it."""
    total, _ = probe.memory()
    return total or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def own_memory() -> int:
    """Bytes of memory that this process has by now; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def default_host_limit() -> int:
    """Half of the memory that this rank's share of the machine has beside what the process needs itself."""
    return max(0, machine_memory() // local_ranks() - own_memory()) // 2


def local_ranks() -> int:
    """How many ranks share this machine, as their launcher told them; 1 without a launcher."""
    for name in ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"):
        value = os.environ.get(name, "")
        if value.isdigit() and int(value) > 0:
            return int(value)
    return 1
