"""Facts about the machine that builds, where they decide what a package may promise."""

from __future__ import annotations

import functools
import os
import platform
from pathlib import Path


@functools.cache
def glibc_version() -> str:
    """Version of the C library that this machine runs on, e.g. "2.36"; "0" on another libc."""
    name, version = platform.libc_ver()
    return version if name == "glibc" else "0"


def cpu_count() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def memory_available() -> int:
    """Bytes that this process may still take: of the machine, or of its container."""
    free = 0
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) * 1024
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        try:
            free = min(free, int(Path(limit).read_text()) - int(Path(used).read_text()))
        except (OSError, ValueError):
            continue  # no such limit
    return max(free, 0)


SYSTEM_PATH = "/usr/bin:/bin:/usr/sbin:/sbin"
"""Where a distribution's own programs are, whatever PATH a user has."""
