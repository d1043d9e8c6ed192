"""Where this machine's control groups share out processor time."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

CGROUPS = Path("/sys/fs/cgroup")


class CpuHierarchy(NamedTuple):
    """version: of control groups, 1 or 2. top: the hierarchy's root. current: this process's group in it."""

    version: int
    top: Path
    current: Path


def limit_of_time(version: int, quota: int, period: int) -> dict[str, str]:
    """What is written into which files of a group, so that its processes together get `quota` microseconds in
    every `period` of them.
    """
    if version == 2:
        return {"cpu.max": f"{quota} {period}"}
    return {"cpu.cfs_period_us": f"{period}", "cpu.cfs_quota_us": f"{quota}"}


def cpu_hierarchies() -> Iterator[CpuHierarchy]:
    """Hierarchies of either version that can hold groups with a share or a limit of processor time."""
    paths = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        paths[controllers] = path.lstrip("/")
    for top in (CGROUPS, CGROUPS / "unified"):
        try:
            listed = (top / "cgroup.controllers").read_text().split()
        except OSError:
            continue
        if "cpu" in listed and "" in paths:
            yield CpuHierarchy(2, top, top / paths[""])
    for controllers, path in paths.items():
        top = CGROUPS / controllers
        if "cpu" in controllers.split(",") and top.is_dir():
            yield CpuHierarchy(1, top, top / path)
