"""Facts about the machine that builds, where they decide what a package may promise."""

from __future__ import annotations

import functools
import os
import platform
import shutil
import subprocess


@functools.cache
def glibc_version() -> str:
    """Version of the C library that this machine runs on, e.g. "2.36"; "0" on another libc."""
    name, version = platform.libc_ver()
    return version if name == "glibc" else "0"


@functools.cache
def gcc_version() -> str:
    """Major version of the machine's C compiler; "0" when there is none."""
    compiler = shutil.which("gcc", path=BUILD_PATH)
    if compiler is None:
        return "0"
    answer = subprocess.run(
        [compiler, "-dumpversion"], capture_output=True, text=True, timeout=20, check=False
    )
    return answer.stdout.strip().split(".")[0] or "0"


BUILD_PATH = "/usr/bin:/bin:/usr/sbin:/sbin"
"""PATH of builds: the distribution's own tools. A user's private ones would leak into packages."""


def host_variant() -> dict[str, list[str]]:
    """Variant keys that recipes may use to say honestly what a package was built on."""
    return {"host_glibc": [glibc_version()], "host_gcc": [gcc_version()]}


def cpu_count() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))
