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
from .plan import CHIEF, SERVER, VARIABLE, WORKER, ClusterRequest, read

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
class _TaskState:
    """A task, and what has become of it. due: when to start it again. end: the last one, for good."""

    task: Own
    child: Child | None = None
    restarts: int = 0
    due: float | None = None
    reason: str = ""
    end: End | None = None


@dataclass
class Supervisor:
    """The supervisor of one rank. mask: signals that were blocked before it began."""

    request: ClusterRequest
    location: Place
    command: Sequence[str]
    mask: Collection[int]
    watched: list[_TaskState]
    guard: Guard
    closing: bool = field(default=False, init=False)

    @property
    def rank_task(self) -> _TaskState:
        """The task of the rank."""
        return self.watched[0]

    @property
    def counts(self) -> bool:
        """Whether the job waits for the end of the rank's task."""
        return self.rank_task.task.type == (CHIEF if self.request.chief else WORKER)

    def start(self, state: _TaskState) -> None:
        """Raises OSError where the program cannot be started."""
        is_server = state.task.type == SERVER
        state.due = None
        state.child = Child(
            state.task,
            self.command,
            environment(state.task, os.environ, state.restarts, state.reason),
            signals=self.mask,
            # A parameter server serves all workers, not the one whose cores its supervisor is bound to.
            cpus=self.location.cpus if is_server else frozenset(),
            tag=f"[{state.task}] ".encode() if is_server and self.request.tagged else b"",
            reads=not is_server and state.restarts == 0,
            guard=self.guard,
        )

    def run(self, barrier: Any) -> End:
        """Run until all tasks that count have ended well, or one has failed for good. barrier: begins one of
        all supervisors, whose Test() tells whether it is complete.
        """
        for state in self.watched:
            self.start(state)
        arrived = None
        while True:
            if arrived is None and (not self.counts or self.rank_task.end is not None):
                arrived = barrier()
            if arrived is not None and arrived.Test():
                self._end_all(self.request.grace)
                return End(0)
            self._take_signal()
            for state in self.watched:
                if (failed := self._look(state)) is not None:
                    self._end_all(0)
                    return failed

    def _take_signal(self) -> None:
        info = signal.sigtimedwait(_WAITED, _POLL_SECONDS)
        if info is None or info.si_signo == signal.SIGCHLD:
            return
        if info.si_signo in _ENDING:
            # Parameter servers go on: workers may still write a checkpoint.
            self.closing = True
        if self.rank_task.child is not None and self.rank_task.end is None:
            self.rank_task.child.signal(info.si_signo)

    def _look(self, state: _TaskState) -> End | None:
        """See after a task; how it ended where the job fails by that."""
        if state.due is not None and (self.closing or time.monotonic() >= state.due):
            if self.closing:
                return End(1)  # it is not there, and nobody will start it
            self.start(state)
        if state.end is not None or state.due is not None or state.child is None:
            return None
        ended = state.child.end(kill_rest=self.request.restarts > 0)
        if ended is None:
            return None
        if ended.code == 0 or (self.closing and state is self.rank_task and not self.counts):
            state.end = ended
            return None
        event = f"{state.task} on {self.location.host} ended with {ended}"
        number = int(Code.TASK)
        if self.closing or state.restarts >= self.request.restarts:
            if self.request.restarts and not self.closing:
                most = f"-max-restarts {self.request.restarts} allows no more"
                say(f"[ERROR DDL-2-{number}] {event}; started {state.restarts + 1} times; {most}")
            elif state is not self.rank_task:
                beside = f"beside rank {os.environ.get('RANK', '?')}"
                say(f"[ERROR DDL-2-{number}] {event}; {beside}; see its output")
            return ended
        state.restarts += 1
        state.reason = event
        state.due = time.monotonic() + pause_before(state.restarts)
        say(f"[WARN DDL-2-{number}] {event}; started again ({state.restarts} of {self.request.restarts})")
        return None

    def _end_all(self, grace: float) -> None:
        """End what still runs: by SIGTERM, after the time of grace by SIGKILL."""
        children = [state.child for state in self.watched if state.child is not None and state.end is None]
        for child in children:
            child.signal(signal.SIGTERM if grace else signal.SIGKILL)
        until = time.monotonic() + grace
        while grace and time.monotonic() < until:
            children = [child for child in children if child.end(kill_rest=True) is None]
            if not children:
                return
            signal.sigtimedwait({signal.SIGCHLD}, 0.05)
        for child in children:
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


def main(command: Sequence[str]) -> int:
    """The exit code of this rank. It does not return where its task has failed."""
    request = read(os.environ[VARIABLE])
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
        location = place(request, comm)
        tasks = own_tasks(request, location, comm)
        # mpi4py has put nothing into the environment; what MPI itself has, the tasks do not get.
        supervisor = Supervisor(request, location, command, mask, [_TaskState(task) for task in tasks], guard)
        end = supervisor.run(comm.Ibarrier)
    except LaunchError as error:
        say(str(error))
        os._exit(error.exit_code)
    except OSError as error:
        say(f"{command[0]}: {error.strerror}")
        os._exit(127)
    if end.code == 0:
        MPI.Finalize()
        return 0
    # Without MPI's own end, which would wait for the others: the launcher ends them.
    os._exit(_end_like(end, as_signal=request.restarts == 0))
