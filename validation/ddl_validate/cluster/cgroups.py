"""Where this machine's control groups share out processor time."""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

CGROUPS = Path("/sys/fs/cgroup")


class CpuHierarchy(NamedTuple):
    """version: of control groups, 1 or 2. top: the hierarchy's root. current: this process's group in it."""

    version: int
    top: Path
    current: Path


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


def make_limited_group(
    name: str, quota: int, period: int, accept: Callable[[Path, Path], object] = lambda group, home: None
) -> tuple[Path | None, list[str]]:
    """A new group whose processes together get `quota` microseconds in every `period` of them; None and the
    reasons where there can be none.

    It is made below the root of a hierarchy, or below this process's own group where only that is allowed.
    accept: called with the group and this process's own one; OSError where the group is of no use.
    """
    reasons = []
    for version, top, current in cpu_hierarchies():
        for parent in dict.fromkeys((top, current)):
            group = parent / name
            try:
                group.mkdir()
                if version == 2:
                    control = parent / "cgroup.subtree_control"
                    if "cpu" not in control.read_text().split():
                        control.write_text("+cpu")
                    (group / "cpu.max").write_text(f"{quota} {period}")
                else:
                    (group / "cpu.cfs_period_us").write_text(f"{period}")
                    (group / "cpu.cfs_quota_us").write_text(f"{quota}")
                accept(group, current)
                return group, []
            except OSError as error:
                reasons.append(f"{group}: {error.strerror}")
                with suppress(OSError):
                    group.rmdir()
    return None, reasons


def remove_group(group: Path, limit: float) -> None:
    """Its processes must have been told to end: they are waited for, at most so many seconds."""
    end = time.monotonic() + limit
    while True:
        try:
            group.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > end:
                return
            time.sleep(0.05)
