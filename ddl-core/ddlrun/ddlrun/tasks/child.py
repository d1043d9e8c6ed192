"""One task as a process: its environment, its start, and how it ended."""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from .. import processes, rank_variables
from .cluster import Own
from .guard import Guard
from .plan import SERVER, VARIABLE

# By these `import ddl` would look for other ranks. DDL_OPTIONS has the sizes of a job of DDL's.
_OF_DDL = (
    *("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "DDLRUN_MASTER", "SLURM_STEP_NUM_TASKS"),
    *("DDL_OPTIONS", "DDL_HOST_ORDER", VARIABLE),
)
# The network card beside a rank's GPU.
_CARD = "UCX_NET_DEVICES"
# TensorFlow makes as many threads for operators as there are cores. A step of ParameterServerStrategy waits
# in one of them for operators that need another: on one core it waits for ever.
_THREADS, _FEWEST_THREADS = "TF_NUM_INTEROP_THREADS", 2


@dataclass(frozen=True)
class End:
    """How a task ended. code: 128 + n for signal n. signal: that killed it, or none."""

    code: int
    signal: int | None = None

    def __str__(self) -> str:
        return f"signal {self.signal}" if self.signal else f"exit code {self.code}"


def environment(task: Own, base: Mapping[str, str], restarts: int, reason: str) -> dict[str, str]:
    """What the program of a task sees. restarts: of this task, in place. reason: of the last of them."""
    variables = {
        name: value
        for name, value in base.items()
        # with them the program would take itself for the rank that its supervisor is
        if name not in _OF_DDL and not rank_variables.of_mpi(name)
    }
    if task.type == SERVER:
        variables = rank_variables.without(variables)
        variables.pop(_CARD, None)
        # It computes little, and the workers need all of the GPUs' memory.
        variables["CUDA_VISIBLE_DEVICES"] = "-1"
    variables["TF_CONFIG"] = task.config
    if len(os.sched_getaffinity(0)) < _FEWEST_THREADS:
        variables.setdefault(_THREADS, str(_FEWEST_THREADS))
    if restarts:
        of_job = variables.get("DDL_RESTART_COUNT", "0")
        variables["DDL_RESTART_COUNT"] = str((int(of_job) if of_job.isdecimal() else 0) + restarts)
        variables["DDL_RESTART_REASON"] = reason
    return variables


class Child:
    """The process of a task, in a process group of its own. It does not outlive this one."""

    def __init__(
        self,
        task: Own,
        command: Sequence[str],
        variables: Mapping[str, str],
        *,
        signals: Collection[int],
        cpus: frozenset[int],
        tag: bytes,
        reads: bool,
        guard: Guard,
    ) -> None:
        """Raises OSError where it cannot start.

        signals: the signal mask of the program. cpus: to run on; none: those of this process. tag: before
        each of its lines. reads: whether it has our standard input. guard: is told of it.
        """
        die_with_parent = processes.die_with_parent(signal.SIGKILL)

        def prepare() -> None:
            die_with_parent()
            if cpus:
                with contextlib.suppress(OSError):
                    os.sched_setaffinity(0, cpus)
            signal.pthread_sigmask(signal.SIG_SETMASK, signals)

        piped = subprocess.PIPE if tag else None
        self.task, self._guard = task, guard
        self._process = subprocess.Popen(
            command,
            env=dict(variables),
            stdin=None if reads else subprocess.DEVNULL,
            stdout=piped,
            stderr=piped,
            process_group=0,
            preexec_fn=prepare,
        )
        guard.add(self._process.pid)
        self._pumps = [
            threading.Thread(target=_hand_on, args=(source, target, tag), daemon=True)
            for source, target in ((self._process.stdout, 1), (self._process.stderr, 2))
            if source is not None
        ]
        for pump in self._pumps:
            pump.start()

    def signal(self, number: int) -> None:
        """To the program and to what it has started in its group; not once its number may be another's."""
        if self._process.returncode is not None:
            return
        processes.send(number, -self._process.pid)

    def end(self, *, kill_rest: bool) -> End | None:
        """How it has ended; None: not yet. kill_rest: what it has left in its group is killed then."""
        if self._process.returncode is None:
            status = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if status is None:
                return None
            if kill_rest:
                self.signal(signal.SIGKILL)  # before its number can be another's
            self._guard.discard(self._process.pid)
        code = self._process.wait()
        for pump in self._pumps:
            pump.join(1)  # what it has left behind may hold the pipe
        return End(processes.shell_code(code), -code if code < 0 else None)


def _hand_on(source: IO[bytes], target: int, tag: bytes) -> None:
    with source, contextlib.suppress(OSError, ValueError):
        for line in source:
            os.write(target, tag + line)
