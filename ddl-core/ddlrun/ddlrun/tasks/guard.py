"""A process beside a supervisor that outlives it, and then kills what the supervisor's tasks have left.

The kernel kills the tasks themselves with their supervisor, not what they have started. That would hold the
output of the rank open, and the launcher would wait for its end instead of reporting the loss of the rank.
"""

import contextlib
import os
import signal


class Guard:
    """Made before MPI's threads begin."""

    def __init__(self) -> None:
        reading, self._telling = os.pipe()
        if os.fork():
            os.close(reading)
            return
        try:
            os.close(self._telling)
            os.setsid()
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
                signal.signal(number, signal.SIG_IGN)
            nothing = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(nothing, stream)
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
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)
