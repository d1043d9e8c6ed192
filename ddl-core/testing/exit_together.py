"""python exit_together.py COMMAND…, as a rank: COMMAND; ends when all ranks have, the first of them first.

mpirun kills the other ranks half a second after the first has ended. What those say of it then reaches a test
only on a fast machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path


def _children(process: int) -> list[int]:
    try:
        return [
            int(number) for number in Path(f"/proc/{process}/task/{process}/children").read_text().split()
        ]
    except OSError:  # it has ended
        return []


def _runs(process: int) -> bool:
    """False for what has ended or was stopped by a signal."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZT"
    except OSError:
        return False


def _wait(until: Callable[[], bool], limit_s: float) -> None:
    limit = time.monotonic() + limit_s
    while not until() and time.monotonic() < limit:
        time.sleep(0.01)


def main() -> int:
    """Returns: the command's exit status; 128 and the signal that ended it."""
    status = subprocess.run(sys.argv[1:]).returncode
    others = [process for process in _children(os.getppid()) if process != os.getpid()]
    ranks = [rank for other in others for rank in _children(other)]
    if any(_runs(rank) for rank in ranks):
        _wait(lambda: not any(_runs(rank) for rank in ranks), 60)
    else:  # the last one; the job's status is that of the first
        _wait(lambda: not all(_runs(other) for other in others), 5)
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
