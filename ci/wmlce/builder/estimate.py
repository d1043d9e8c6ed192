"""How long the builds of a channel will take: the times of earlier builds, at the pace of this run.

build_times.json beside this file has the seconds of what ci/quickstart builds, on one machine. Those of the
machine at hand, which builds keep in the cache, go before them. To renew it, run ci/quickstart with a new,
empty cache (WMLCE_CACHE), and copy the "seconds" of its build-times.json, with the machine and the date.
"""

from __future__ import annotations

import heapq
import json
import statistics
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from itertools import islice
from pathlib import Path

from wmlce.util.errors import WmlceError
from wmlce.util.files import write_atomic
from wmlce.util.layout import Layout
from wmlce.util.locks import file_lock

RECORD = Path(__file__).with_name("build_times.json")
#: Of a recipe that nothing is known of, where nothing is known of any.
_UNKNOWN_S = 20.0


def own_times(layout: Layout) -> Path:
    """What builds took on this machine; seconds by recipe."""
    return layout.cache / "build-times.json"


def _read(path: Path) -> dict[str, float]:
    """Nothing where the file is missing or spoilt: an estimate is no reason to fail."""
    try:
        seconds = json.loads(path.read_text())["seconds"]
        return {str(name): float(took) for name, took in seconds.items() if 0 <= float(took) < 86400}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def recorded_times(layout: Layout) -> dict[str, float]:
    """Seconds by recipe."""
    return _read(RECORD) | _read(own_times(layout))


def usual(times: Mapping[str, float], name: str) -> float:
    """Seconds of a recipe; those of the others' median where nothing is known of it."""
    if name in times:
        return times[name]
    return statistics.median(times.values()) if times else _UNKNOWN_S


def keep(layout: Layout, times: Mapping[str, float], say: Callable[[str], None]) -> None:
    """Add what builds have taken to this machine's times, where they can be written."""
    if not times:
        return
    path = own_times(layout)
    # the build's own error, of a full disk for example, is the one to be told
    with (
        suppress(OSError, WmlceError),
        file_lock(layout.locks / "build-times.lock", "the times of builds", say=say),
    ):
        after = _read(path) | {name: round(took, 1) for name, took in times.items()}
        write_atomic(path, json.dumps({"seconds": dict(sorted(after.items()))}, indent=1) + "\n")


def seconds_left(
    waiting: Sequence[str],
    running: Mapping[str, float],
    finished: Mapping[str, float],
    needs: Mapping[str, Set[str]],
    times: Mapping[str, float],
    jobs: int,
) -> float:
    """What the builds that are left will take, in the order in which they are begun.

    Args:
        waiting: Those that are not begun, the most urgent first.
        running: What is under way, and for how many seconds it has been.
        finished: Seconds of what this run has built. It tells how fast the machine is beside `times`.
        needs: What must be finished before a recipe begins; what is in none of the above is.
        times: See `known`.
        jobs: How many are built at a time.
    """
    expected = sum(usual(times, name) for name in finished)
    # a few small ones say little: as much again as this many seconds of the record is taken to go at its pace
    pace = (sum(finished.values()) + 30) / (expected + 30)

    def remaining(name: str, since: float = 0.0) -> float:
        whole = usual(times, name) * pace
        # what takes longer than expected goes on a little
        return max(whole - since, 0.1 * whole, 1.0)

    now = 0.0
    ends = [(remaining(name, since), name) for name, since in running.items()]
    heapq.heapify(ends)
    open_ones, todo = set(waiting) | set(running), list(waiting)
    while ends or todo:
        ready = (name for name in todo if not needs.get(name, set()) & open_ones)
        for name in list(islice(ready, max(jobs - len(ends), 0))):
            todo.remove(name)
            heapq.heappush(ends, (now + remaining(name), name))
        if not ends:
            break  # what is left waits for something that is not built
        now, name = heapq.heappop(ends)
        open_ones.discard(name)
    return now
