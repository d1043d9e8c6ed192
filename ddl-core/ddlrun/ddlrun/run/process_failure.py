"""What mpirun says about the end of a job: which rank, on which host, how.

Its exit code and its friendly messages do not suffice: Open MPI 5.0 ends with code 0 when a host is lost, and
the message about a failing process is lost now and then. So the states that its error and state managers
print are what counts here; they are written at once and in order.
"""

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import Code, LaunchError
from ..placement.slots import Placement
from ..tasks.plan import Task
from .output import Tails

_STATE = re.compile(r"errmgr:\w+: for proc \[\S+@(\d+),(\d+)\] state ([A-Z][A-Z -]*[A-Z])")
_FINISHED = re.compile(r"ACTIVATING JOB \S+@[1-9]\d* STATE NORMALLY TERMINATED")
_RUNNING = re.compile(r"ACTIVATING JOB \S+@[1-9]\d* STATE RUNNING")
_REPORT = re.compile(r"\[prterun-\S+@\d+,\d+\] (?:errmgr:|state:|\[[\d.]+\] ACTIVAT|ACTIVAT)")
_MESSAGE = re.compile(
    r"process rank \d+ with PID \d+ on node \S+ (?:exited on|calling|exiting improperly)"
    r"|Process name: \[\S+@\d+,\d+\] Exit code: \d+"
    r"|lost communication with a remote daemon"
)
# Two processes of mpirun set the same process group; the one that comes late says so, and nothing is wrong.
_HARMLESS = "plm:ssh: Warning: setpgid"


def reporting(remote: bool) -> list[str]:
    """Words for mpirun, so that it prints the lines that are read here. Daemons can be lost only on other
    hosts.
    """
    arguments = ["--prtemca", "errmgr_base_verbose", "1"]
    return [*arguments, "--prtemca", "state_base_verbose", "1"] if remote else arguments


def is_known(block: str) -> bool:
    """Whether a message block of mpirun is said again, with more, by ``explain``."""
    return _MESSAGE.search(" ".join(block.split())) is not None


@dataclass(frozen=True)
class ProcessFailure:
    """How a process ended. number: a rank, or, for a daemon, its number among the other hosts, from 1. code,
    host: where the launcher tells them.
    """

    is_rank: bool
    number: int
    state: str
    code: int | None = None
    host: str | None = None


@dataclass
class LauncherMessages:
    """What the launcher told, line by line. first: the first process that failed, while the job was not yet
    over. running: all ranks were just started. launcher_signal: what killed the launcher itself. launcher:
    its name. hint: what may help when the job did not begin.
    """

    first: ProcessFailure | None = None
    finished: bool = False
    running: bool = False
    launcher_signal: int | None = None
    launcher: str = "mpirun"
    hint: str | None = None

    def read(self, line: str) -> bool:
        """Take a line of mpirun; whether it was meant for us rather than for the user."""
        if _FINISHED.search(line):
            self.finished = True
        elif _RUNNING.search(line):
            self.running = True
        elif match := _STATE.search(line):
            death = ProcessFailure(match[1] != "0", int(match[2]), match[3])
            # Daemons that go when the job is over are reported in the same words as lost ones.
            if self.first is None and not self.finished and "NORMALLY" not in death.state:
                self.first = death
        return _REPORT.search(line) is not None or _HARMLESS in line


def is_loss(messages: LauncherMessages, restarted_in_place: bool = False) -> bool:
    """Whether a job that had begun lost a rank, a host or mpirun, rather than never having begun.
    restarted_in_place: what failed was started again already, as often as it may; only a signal, which hits
    what starts it again, is a loss.
    """
    if messages.first is None:
        return messages.launcher_signal is not None
    if restarted_in_place and messages.first.is_rank:
        return "SIGNAL" in messages.first.state
    return not (messages.first.is_rank and "FAILED TO" in messages.first.state)


def lost_host(messages: LauncherMessages, others: Sequence[str]) -> str | None:
    """The host whose daemon was lost first. others: the job's hosts besides this one, in order."""
    if messages.first is None or messages.first.is_rank:
        return None
    if messages.first.host is not None:
        return messages.first.host
    return others[messages.first.number - 1] if 0 < messages.first.number <= len(others) else None


def _manner(state: str, code: int) -> str:
    if "SIGNAL" in state and code > 128:
        try:
            return f"was killed by signal {code - 128} ({signal.Signals(code - 128).name})"
        except ValueError:
            return f"was killed by signal {code - 128}"
    if "NON-ZERO" in state:
        return f"ended with exit code {code}"
    if "ABORT" in state:
        return f"called MPI_Abort with code {code}"
    if "WITHOUT SYNC" in state:
        return "left before MPI was finalised, while the others went on"
    return f"failed ({state.lower()}, code {code})"


def explain(
    code: int,
    messages: LauncherMessages,
    tails: Tails,
    placement: Placement,
    others: Sequence[str],
    log_path: str,
    tasks: Sequence[Task] = (),
) -> LaunchError:
    """The error for a job that did not end well. others: its hosts besides this one, in order. tasks: of its
    TensorFlow cluster.
    """
    death = messages.first
    if death is not None and death.code is not None:
        code = death.code
    exit_code = code or 1
    if death is None and messages.launcher_signal is not None:
        return LaunchError(
            Code.LAUNCHER,
            f"{messages.launcher} {_manner('SIGNAL', code)}",
            "on this host",
            "see who or what killed it: a limit of memory or time, an administrator",
            exit_code=exit_code,
        )
    if death is None or (death.is_rank and "FAILED TO" in death.state):
        return LaunchError(
            Code.LAUNCHER,
            f"{messages.launcher} ended with code {code} before the job was over",
            f"starting on {', '.join(list(placement.counts)[:8])}",
            messages.hint or f"its own words are above and in {log_path}",
            exit_code=exit_code,
        )
    if not death.is_rank:
        lost = lost_host(messages, others) or "?"
        return LaunchError(
            Code.LAUNCHER,
            f"host {lost} was lost",
            f"in {messages.launcher}, {death.state.lower()}",
            f"see whether host {lost} is up, reachable, and has memory left",
        )
    lines = tails.of(death.number)
    quoted = "its last lines:" + "".join(f"\n  | {line}" for line in lines) if lines else "it wrote nothing"
    task = next((f" ({task})" for task in tasks if task.rank == death.number), "")
    return LaunchError(
        Code.RANK,
        f"rank {death.number}{task} {_manner(death.state, code)}",
        f"on host {placement.host_of(death.number)}",
        quoted,
        exit_code=exit_code,
    )
