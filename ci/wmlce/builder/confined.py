"""A command in the build root that runs within limits, and of which nothing runs on when it has ended."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from wmlce.builder.sandbox import Sandbox

#: What no build comes near; beyond, it would take the machine from others.
PROCESSES = 5000
LOG_BYTES = 256 << 20
FILE_BYTES = 16 << 30
SECONDS = 6 * 3600.0
#: Without output and without processor time: py-rattler-build, for one, waits for ever where a script has
#: left a named pipe.
IDLE_S = 900.0

_INTERVAL_S = 1.0
_END_S = 60.0


class Confined:
    """Starts `command` inside; `wait` returns its exit code.

    log: file of its output, whose size is limited, too
    exceeded: which limit ended it, for a message
    """

    def __init__(
        self,
        inside: Sandbox,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str],
        *,
        prefix: Sequence[str] = (),
        seconds: float = SECONDS,
    ) -> None:
        self.log = log
        self.exceeded = ""
        self._end = time.monotonic() + seconds
        self._active: tuple[float, tuple[int, int]] = (time.monotonic(), (-1, -1))
        self._seconds = seconds
        limited = [
            *("/bin/sh", "-c", f'ulimit -c 0; ulimit -f {FILE_BYTES // 512}; exec "$@"', "sh"),
            *command,
        ]
        reader, writer = os.pipe()
        try:
            with log.open("wb") as stream:
                self.process = subprocess.Popen(
                    [*prefix, *inside.command_line(limited, info=writer)],
                    stdin=subprocess.PIPE,  # its closing tells the build that this process is gone
                    stdout=stream,
                    stderr=subprocess.STDOUT,
                    env=dict(environment),
                    start_new_session=True,
                    pass_fds=[writer],
                )
        except BaseException:
            os.close(reader)
            raise
        finally:
            os.close(writer)
        # the first process of its namespace: with it the kernel ends all others
        self._first, self._handle = _first_process(reader)

    @property
    def stdin(self) -> IO[bytes] | None:
        return self.process.stdin

    def wait(self) -> int:
        """Its exit code, when nothing of it runs any more; negative: the signal that ended it."""
        try:
            while True:
                try:
                    code = self.process.wait(_INTERVAL_S)
                    break
                except subprocess.TimeoutExpired:
                    self.exceeded = self.exceeded or self._limit()
                    if self.exceeded:
                        self.kill()
            if self._handle is not None and not select.select([self._handle], [], [], 0)[0]:
                # what it left in the background must change nothing of the result
                self._kill_first()
                if not select.select([self._handle], [], [], _END_S)[0]:
                    self.exceeded = self.exceeded or "its processes could not be ended"
            return code
        finally:
            if self._handle is not None:
                os.close(self._handle)
                self._handle = None

    def kill(self) -> None:
        """End it with everything that it started."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._kill_first()

    def _kill_first(self) -> None:
        if self._handle is not None:
            try:
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def _limit(self) -> str:
        """The limit that it exceeds now, in words."""
        if time.monotonic() > self._end:
            return f"it ran for more than {self._seconds:.0f} s"
        size = self.log.stat().st_size
        if size > LOG_BYTES:
            return f"it printed more than {LOG_BYTES >> 20} MiB"
        if self._first is None:
            return ""
        count, ticks = _descendants(self._first)
        if count > PROCESSES:
            return f"it started more than {PROCESSES} processes"
        since, before = self._active
        if (size, ticks) != before:
            self._active = (time.monotonic(), (size, ticks))
        elif time.monotonic() - since > IDLE_S:
            return f"it has done nothing for {IDLE_S:.0f} s"
        return ""


def _first_process(reader: int) -> tuple[int | None, int | None]:
    """Number and handle of what bubblewrap names as its child; None where there was none, or is none now."""
    text = b""
    with os.fdopen(reader, "rb", buffering=0) as stream:
        while select.select([stream], [], [], _END_S)[0] and (part := stream.read(4096)):
            text += part
    try:
        number = int(json.loads(text)["child-pid"])
        return number, os.pidfd_open(number)
    except (ValueError, KeyError, ProcessLookupError):
        return None, None


def _descendants(first: int) -> tuple[int, int]:
    """How many processes descend from this one, and their processor time in clock ticks. Orphans in its
    namespace become its own children.
    """
    children: dict[int, list[tuple[int, int]]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            try:
                with open(f"/proc/{entry.name}/stat", "rb") as stream:
                    fields = stream.read().rpartition(b")")[2].split()
                parent, ticks = int(fields[1]), sum(map(int, fields[11:15]))
            except (OSError, ValueError, IndexError):
                continue
            children.setdefault(parent, []).append((int(entry.name), ticks))
    count = total = 0
    todo = [first]
    while todo:
        for process, ticks in children.get(todo.pop(), []):
            count, total = count + 1, total + ticks
            todo.append(process)
    return count, total
