"""Between the launcher and the program of a rank: `supervisor.main(PROGRAM ARGUMENT…)`.

It starts the rank's task, and on the first rank of a host the parameter servers of that host. Tasks that
count are all workers or, where there is one, the chief alone. When all of them have ended well, everywhere,
it ends the others. A barrier tells: one that is looked at now and then, as waiting in MPI would take a core.
"""

import os
import resource
import signal
import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import Code, LaunchError
from .child import Child, End, environment
from .cluster import Own, Place, own_tasks, place
from .guard import Guard
from .plan import CHIEF, SERVER, VARIABLE, WORKER, Asked, read

_POLL_SECONDS = 0.15
# Ranks start together; one that fails to ends the job.
_MEET_SECONDS = 300.0
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 30.0
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_HANDED_ON = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP, signal.SIGCONT)
_WAITED = {*_ENDING, *_HANDED_ON, signal.SIGCHLD}


def say(text: str) -> None:
    """One line on standard error, whole."""
    try:
        os.write(2, f"{text}\n".encode())
    except OSError:
        pass  # nobody reads it any more


def pause_before(restart: int) -> float:
    """Seconds before the n-th restart of a task."""
    return min(_FIRST_PAUSE_SECONDS * 2.0 ** min(restart - 1, 10), _LONGEST_PAUSE_SECONDS)


@dataclass
class _Watched:
    """A task, and what has become of it. due: when to start it again. end: the last one, for good."""

    task: Own
    child: Child | None = None
    restarts: int = 0
    due: float | None = None
    reason: str = ""
    end: End | None = None


@dataclass
class Supervisor:
    """Of one rank. mask: signals that were blocked before it began."""

    asked: Asked
    here: Place
    words: Sequence[str]
    mask: Collection[int]
    watched: list[_Watched]
    guard: Guard
    closing: bool = field(default=False, init=False)

    @property
    def own(self) -> _Watched:
        """The task of the rank."""
        return self.watched[0]

    @property
    def counts(self) -> bool:
        """Whether the job waits for the end of the rank's task."""
        return self.own.task.type == (CHIEF if self.asked.chief else WORKER)

    def start(self, one: _Watched) -> None:
        """Raises OSError where the program cannot be started."""
        is_server = one.task.type == SERVER
        one.due = None
        one.child = Child(
            one.task,
            self.words,
            environment(one.task, os.environ, one.restarts, one.reason),
            signals=self.mask,
            # A parameter server serves all workers, not the one whose cores its supervisor is bound to.
            cpus=self.here.cpus if is_server else frozenset(),
            tag=f"[{one.task}] ".encode() if is_server and self.asked.tagged else b"",
            reads=not is_server and one.restarts == 0,
            guard=self.guard,
        )

    def run(self, barrier: Any) -> End:
        """Until all tasks that count have ended well, or one has failed for good. barrier: begins one of all
        supervisors, whose Test() tells whether it is complete.
        """
        for one in self.watched:
            self.start(one)
        arrived = None
        while True:
            if arrived is None and (not self.counts or self.own.end is not None):
                arrived = barrier()
            if arrived is not None and arrived.Test():
                self._end_all(self.asked.grace)
                return End(0)
            self._take_signal()
            for one in self.watched:
                if (failed := self._look(one)) is not None:
                    self._end_all(0)
                    return failed

    def _take_signal(self) -> None:
        found = signal.sigtimedwait(_WAITED, _POLL_SECONDS)
        if found is None or found.si_signo == signal.SIGCHLD:
            return
        if found.si_signo in _ENDING:
            # Parameter servers go on: workers may still write a checkpoint.
            self.closing = True
        if self.own.child is not None and self.own.end is None:
            self.own.child.signal(found.si_signo)

    def _look(self, one: _Watched) -> End | None:
        """See after a task; how it ended where the job fails by that."""
        if one.due is not None and (self.closing or time.monotonic() >= one.due):
            if self.closing:
                return End(1)  # it is not there, and nobody will start it
            self.start(one)
        if one.end is not None or one.due is not None or one.child is None:
            return None
        ended = one.child.end(kill_rest=self.asked.restarts > 0)
        if ended is None:
            return None
        if ended.code == 0 or (self.closing and one is self.own and not self.counts):
            one.end = ended
            return None
        what = f"{one.task} on {self.here.host} ended with {ended}"
        number = int(Code.TASK)
        if self.closing or one.restarts >= self.asked.restarts:
            if self.asked.restarts and not self.closing:
                most = f"-max-restarts {self.asked.restarts} allows no more"
                say(f"[ERROR DDL-2-{number}] {what}; started {one.restarts + 1} times; {most}")
            elif one is not self.own:
                beside = f"beside rank {os.environ.get('RANK', '?')}"
                say(f"[ERROR DDL-2-{number}] {what}; {beside}; see its output")
            return ended
        one.restarts += 1
        one.reason = what
        one.due = time.monotonic() + pause_before(one.restarts)
        say(f"[WARN DDL-2-{number}] {what}; started again ({one.restarts} of {self.asked.restarts})")
        return None

    def _end_all(self, grace: float) -> None:
        """End what still runs: by SIGTERM, after the time of grace by SIGKILL."""
        left = [one.child for one in self.watched if one.child is not None and one.end is None]
        for child in left:
            child.signal(signal.SIGTERM if grace else signal.SIGKILL)
        until = time.monotonic() + grace
        while grace and time.monotonic() < until:
            left = [child for child in left if child.end(kill_rest=True) is None]
            if not left:
                return
            signal.sigtimedwait({signal.SIGCHLD}, 0.05)
        for child in left:
            child.signal(signal.SIGKILL)
            while child.end(kill_rest=True) is None:
                time.sleep(0.01)


def _meet(comm: Any) -> None:
    """Wait for all supervisors. Raises LaunchError where one does not come."""
    arrived, until = comm.Ibarrier(), time.monotonic() + _MEET_SECONDS
    while not arrived.Test():
        if time.monotonic() > until:
            raise LaunchError(
                Code.CLUSTER,
                f"not all ranks have started within {_MEET_SECONDS:g} s",
                f"in rank {comm.Get_rank()}",
                "see which host hangs: `ddlrun -check`",
            )
        time.sleep(0.01)


def _end_like(end: End, as_signal: bool) -> int:
    """The exit code of a task; where a signal killed it and nothing was started again, die by the same."""
    sys.stdout.flush()
    if as_signal and end.signal is not None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the task's own is enough
        if end.signal != signal.SIGKILL:
            signal.signal(end.signal, signal.SIG_DFL)
        os.kill(os.getpid(), end.signal)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {end.signal})
    return end.code


def main(words: Sequence[str]) -> int:
    """The exit code of this rank. It does not return where its task has failed."""
    asked = read(os.environ[VARIABLE])
    # Before MPI's threads begin, so that none of them takes a signal.
    guard = Guard()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED)
    try:
        try:
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:
            raise LaunchError(
                Code.CLUSTER,
                f"mpi4py cannot be used: {error}",
                f"on host {os.uname().nodename}",
                "install the package mpi4py in the environment of ddlrun, on all hosts",
            ) from None
        comm = MPI.COMM_WORLD
        if comm.Get_size() == 1 and os.environ.get("WORLD_SIZE", "1") != "1":
            raise LaunchError(
                Code.CLUSTER,
                "MPI does not know the other ranks",
                f"in rank {os.environ.get('RANK', '?')}",
                "use the launcher that belongs to the MPI of the environment",
            )
        _meet(comm)
        here = place(asked, comm)
        tasks = own_tasks(asked, here, comm)
        # mpi4py has put nothing into the environment; what MPI itself has, the tasks do not get.
        supervisor = Supervisor(asked, here, words, mask, [_Watched(task) for task in tasks], guard)
        end = supervisor.run(comm.Ibarrier)
    except LaunchError as error:
        say(str(error))
        os._exit(error.exit_code)
    except OSError as error:
        say(f"{words[0]}: {error.strerror}")
        os._exit(127)
    if end.code == 0:
        MPI.Finalize()
        return 0
    # Without MPI's own end, which would wait for the others: the launcher ends them.
    os._exit(_end_like(end, as_signal=asked.restarts == 0))
