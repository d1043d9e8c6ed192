"""One scheduling group for the processes of all hosts.

Where nothing else groups processes, Linux puts every session into a group of its own ("autogroup") and shares
the processors out among these. Every host's daemons are sessions, and on some kernels (seen on 6.18) a group
whose processes yield while they wait, as MPI's ranks do, gets no time at all for seconds while other groups
are busy: a job then stands still for up to minutes, as it never would on hosts with processors of their own.
A control group for the whole cluster takes part in no autogroup.
"""

import os
import time
from contextlib import suppress
from pathlib import Path

from . import cgroups
from .cgroups import CpuHierarchy, cpu_hierarchies
from .errors import ClusterError

_AUTOGROUP = Path("/proc/sys/kernel/sched_autogroup_enabled")
_PREFIX = "emulated-hosts."
_END_SECONDS = 5.0
_PERIOD_US = 100_000  # as everywhere by default: a limited group runs at full speed, then stands still
# A group has these files where the hierarchy shares out processor time on its level.
_FILE_OF_VERSION = {1: "cpu.shares", 2: "cpu.weight"}


def make_group() -> Path | None:
    """A new control group; none where this process is in one already, or may not make one, or where the
    kernel groups nothing by itself. Nothing of the machine is set for that."""
    try:
        if _AUTOGROUP.read_text().strip() != "1":
            return None
    except OSError:
        return None
    for hierarchy in cpu_hierarchies():
        if not _is_ungrouped(hierarchy):
            return None
        _remove_abandoned(hierarchy.top)
        group = hierarchy.top / f"{_PREFIX}{os.getpid()}.{time.monotonic_ns()}"
        try:
            group.mkdir()
        except OSError:
            continue
        if (group / _FILE_OF_VERSION[hierarchy.version]).exists():
            return group
        remove_group(group)
    return None


def make_limited_group(host: str, cores: float) -> Path:
    """A new control group whose processes together get the time of so many cores. ClusterError where that is
    not allowed.
    """
    for _, top, current in cpu_hierarchies():
        for parent in dict.fromkeys((top, current)):
            _remove_abandoned(parent)
    name = f"{_PREFIX}{os.getpid()}.{time.monotonic_ns()}.{host}"
    group, reasons = cgroups.make_limited_group(name, round(cores * _PERIOD_US), _PERIOD_US)
    if group is None:
        causes = "; ".join(reasons) or "no control groups for processor time"
        raise ClusterError(f"host {host}: its processor time cannot be limited ({causes}); be root")
    return group


def in_group(group: Path | None, command: list[str]) -> list[str]:
    """The command line that runs ``words`` in a group; outside of it where that is not allowed any more."""
    if group is None:
        return command
    # 0 is the process that writes
    join = '{ echo 0 >"$0"; } 2>/dev/null; exec "$@"'
    return ["/bin/sh", "-c", join, str(group / "cgroup.procs"), *command]


def remove_group(group: Path) -> None:
    """Its processes must have been told to end: they are waited for, for a while."""
    cgroups.remove_group(group, _END_SECONDS)


def _is_ungrouped(hierarchy: CpuHierarchy) -> bool:
    """Whether no group below the root of the hierarchy holds this process."""
    below = [hierarchy.current, *hierarchy.current.parents]
    below = below[: below.index(hierarchy.top)]
    return not any((group / _FILE_OF_VERSION[hierarchy.version]).exists() for group in below)


def _remove_abandoned(top: Path) -> None:
    """What commands that were killed left. The kernel refuses where a process is still in the group."""
    for group in top.glob(f"{_PREFIX}*"):
        owner = group.name.removeprefix(_PREFIX).partition(".")[0]
        if not Path("/proc", owner).exists():
            with suppress(OSError):
                group.rmdir()
