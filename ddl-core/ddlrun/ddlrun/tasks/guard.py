"""A process beside a supervisor that outlives it, and then kills what the supervisor's tasks have left.

The kernel kills the tasks themselves with their supervisor, not what they have started. That would hold the
output of the rank open, and the launcher would wait for its end instead of reporting the loss of the rank.
"""

import os
import signal

from .. import processes


class Guard:
    """Made before MPI's threads begin."""

    def __init__(self) -> None:
        reading, self._telling = os.pipe()
        if os.fork():
            os.close(reading)
            return
        try:
            os.close(self._telling)
            processes.detach()
            os.chdir("/")
            _watch(reading)
        finally:
            os._exit(0)

    def add(self, group: int) -> None:
        """Note that a task has its processes in this group."""
        os.write(self._telling, f"+{group}\n".encode())

    def discard(self, group: int) -> None:
        """Forget a group: its number may be another's from now on."""
        os.write(self._telling, f"-{group}\n".encode())


def _watch(reading: int) -> None:
    groups: set[int] = set()
    with open(reading) as messages:
        for line in messages:
            (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
    for group in groups:
        processes.send(signal.SIGKILL, -group)
