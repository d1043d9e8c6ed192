"""Facts about the machine that builds, where they decide what a package may promise."""

from __future__ import annotations

import functools
import os
import platform


@functools.cache
def glibc_version() -> str:
    """Version of the C library that this machine runs on, e.g. "2.36"; "0" on another libc."""
    name, version = platform.libc_ver()
    return version if name == "glibc" else "0"


def cpu_count() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


SYSTEM_PATH = "/usr/bin:/bin:/usr/sbin:/sbin"
"""Where a distribution's own programs are, whatever PATH a user has."""
