"""Time that counts for a measurement, and for how long a quota let this process stand still."""

from __future__ import annotations

import time
from pathlib import Path


def group_folders(memberships: str, top: Path = Path("/sys/fs/cgroup")) -> list[Path]:
    """Folders of the control groups that may limit this process's time: its own and those above it."""
    folders = []
    for line in memberships.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        roots = [top / controllers] if controllers else [top, top / "unified"]
        for root in roots:
            group = root / path.lstrip("/")
            # a container may see its group as the root
            folders += [
                folder for folder in (group, *group.parents) if folder == root or root in folder.parents
            ]
    return [folder for folder in dict.fromkeys(folders) if (folder / "cpu.stat").exists()]


def quota_stops(folders: list[Path]) -> tuple[int, float]:
    """In how many periods a quota was spent, and for how many seconds processes then stood still."""
    times, seconds = 0, 0.0
    for folder in folders:
        counters: dict[str, int] = {}
        try:
            for line in (folder / "cpu.stat").read_text().splitlines():
                name, value = line.split()
                counters[name] = int(value)
        except (OSError, ValueError):
            continue
        times += counters.get("nr_throttled", 0)
        seconds += counters.get("throttled_usec", 0) / 1e6 + counters.get("throttled_time", 0) / 1e9
    return times, seconds


class Elapsed:
    """Starts when it is made.

    On a host of its own the clock on the wall counts: whatever stops a rank makes the host slow. Where hosts
    share a machine (they are emulated), programs of the others and of the machine say nothing about this one:
    there its processor time counts, unless its own quota stopped it.
    """

    def __init__(self, shared: bool) -> None:
        self._shared = shared
        self._groups = group_folders(Path("/proc/self/cgroup").read_text())
        self._stops, self._stood = quota_stops(self._groups)
        self._used, self._began = time.process_time(), time.perf_counter()

    def read(self) -> dict[str, float]:
        """seconds: those that count. at_work: the share of them on the wall with a processor. quota_stops,
        quota_stood: periods in which the quota was spent, and seconds."""
        wall, used = time.perf_counter() - self._began, time.process_time() - self._used
        stops, stood = quota_stops(self._groups)
        return {
            "seconds": used if self._shared and stops == self._stops else wall,
            "at_work": min(1.0, used / wall),
            "quota_stops": stops - self._stops,
            "quota_stood": stood - self._stood,
        }
