"""Streams of the launcher on their way: its output to ours, what is typed to it."""

import contextlib
import errno
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import IO

from ..console import clear_progress, show_progress
from ..start.launcher_messages import LauncherMessages, is_known
from ..start.launchers.base import Splitter

_SILENT_SECONDS = 3.0
# Between two looks at a terminal that belongs to another job.
_BACKGROUND_SECONDS = 0.2
_RULE = b"-" * 60
_BLOCK_LONGEST = 64 << 10


class LauncherLines:
    """mpirun's own output. Blocks between rules are held until they are whole: some are said better later."""

    def __init__(
        self, write: Callable[[bytes], None], log: Callable[[str], None], messages: LauncherMessages
    ) -> None:
        self._write, self._log, self._messages = write, log, messages
        self._block: bytes | None = None

    def line(self, data: bytes) -> None:
        text = data.decode(errors="replace").strip("\0").rstrip()
        if data and not data.strip(b"\0"):
            return  # mpirun 5.0 ends with a stray one
        if "ACTIVATE " not in text:  # each of these is followed by the same with "ACTIVATING"
            self._log(f"{self._messages.launcher}: {text}")
        if self._messages.read(text):
            if self._messages.running:
                show_progress("[DDL] running")
                self._messages.running = False
            return
        rule = data.startswith(_RULE)
        if self._block is None:
            if rule:
                self._block = data
            else:
                self._write(data)
            return
        self._block += data
        if rule or len(self._block) > _BLOCK_LONGEST:
            self.flush()

    def flush(self) -> None:
        if self._block is not None and not is_known(self._block.decode(errors="replace")):
            self._write(self._block)
        self._block = None


def writer(stream: IO[bytes], lost: list[OSError]) -> Callable[[bytes], None]:
    """Write at once; when that fails, the job still goes on to its end. lost: gets the failures, but not that
    nobody reads any more.
    """

    def write(data: bytes) -> None:
        if not data:
            return
        clear_progress()
        try:
            # Past the buffer, in which what cannot be written would stay.
            stream.flush()
            view = memoryview(data)
            while view:
                view = view[os.write(stream.fileno(), view) :]
        except ValueError:  # closed
            pass
        except OSError as error:
            if error.errno != errno.EPIPE:
                lost.append(error)

    return write


class OutputPump(threading.Thread):
    """Hands one stream of mpirun on, piece by piece. busy: at work, perhaps waiting for a slow reader."""

    def __init__(
        self,
        source: IO[bytes],
        write: Callable[[bytes], None],
        splitter: Splitter,
        launcher_lines: LauncherLines,
        take: Callable[[int, bytes], bytes],
        rest: Callable[[], bytes],
    ) -> None:
        """What the pieces are for.

        Args:
            source: The launcher's stream.
            write: Takes what is ready.
            splitter: Finds the rank of each piece.
            launcher_lines: Takes what is no rank's.
            take: Makes of a rank's piece what is printed.
            rest: What is printed at the end.
        """
        super().__init__(daemon=True)
        self._source, self._write, self._splitter = source, write, splitter
        self._launcher_lines, self._take, self._rest = launcher_lines, take, rest
        self.busy = False

    def run(self) -> None:
        data = b"-"
        while data:
            data = os.read(self._source.fileno(), 1 << 16)
            self.busy = True
            self._hand_on(data)
            self.busy = False

    def _hand_on(self, data: bytes) -> None:
        ready = bytearray()
        for rank, piece in self._splitter.feed(data, last=not data):
            if rank is None:
                self._write(bytes(ready))
                ready.clear()
                self._launcher_lines.line(piece)
            else:
                ready += self._take(rank, piece)
        if not data:
            ready += self._rest()
        self._write(bytes(ready))


def drain(pump: OutputPump, is_interrupted: Callable[[], bool]) -> None:
    """Wait until everything is handed on. A reader may be slow; but a process that a rank left behind may
    keep the pipe open without ever writing, and a signal means that nobody waits any more.
    """
    silent_since = time.monotonic()
    while pump.is_alive() and not is_interrupted():
        pump.join(0.05)
        if pump.busy:
            silent_since = time.monotonic()
        elif time.monotonic() > silent_since + _SILENT_SECONDS:
            return


def pump_terminal(target: IO[bytes]) -> None:
    """Hand what is typed to rank 0. mpirun is no member of the terminal's foreground group and must not read
    it; nor must ddlrun while it is in the background, where reading would stop it: then reading fails, and
    is tried again.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTIN})
    with contextlib.suppress(OSError, ValueError), target:
        while True:
            try:
                data = os.read(0, 4096)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                time.sleep(_BACKGROUND_SECONDS)
                continue
            if not data:
                return
            target.write(data)
            target.flush()
