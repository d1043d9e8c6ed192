"""What a launcher says about the end of a job: which rank, on which host, how.

mpirun's exit code and its friendly messages do not suffice: Open MPI 5.0 ends with code 0 when a host is
lost, and the message about a failing process is lost now and then. So the states that its error and state
managers print are what counts here; they are written at once and in order.
"""

import re
from dataclasses import dataclass

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
