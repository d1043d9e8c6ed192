"""What mpirun says about the end of a job: which rank, on which host, how.

mpirun's friendly message about the first failing process is lost now and then when it ends quickly, so the
states that its error manager prints (`errmgr_base_verbose 1`) are what counts here; the message only adds to
them.
"""

import re
import signal
from dataclasses import dataclass

from .errors import Code, LaunchError
from .output import Tails
from .placement import Placement

#: Set for mpirun, so that it prints the lines that are read here.
REPORTING = ("--prtemca", "errmgr_base_verbose", "1")

_STATE = re.compile(r"errmgr:\w+: for proc \[\S+@(\d+),(\d+)\] state ([A-Z][A-Z -]*[A-Z])")
_MESSAGE = re.compile(
    r"process rank \d+ with PID \d+ on node \S+ (?:exited on|calling)"
    r"|Process name: \[\S+@\d+,\d+\] Exit code: \d+"
)


@dataclass(frozen=True)
class Death:
    """How the first failing process ended. number: a rank, or, for a daemon, its number among the job's
    hosts.
    """

    is_rank: bool
    number: int
    state: str


def first_death(said: str) -> Death | None:
    """The first failing rank; a lost daemon only where no rank failed before it. None: mpirun reports
    neither.
    """
    deaths = [
        Death(found[1] != "0", int(found[2]), found[3])
        for found in _STATE.finditer(said)
        if "NORMALLY" not in found[3]
    ]
    return deaths[0] if deaths else None


def is_report(line: str) -> bool:
    """Whether a line of mpirun is not for the user: a state for this module, or a race that mpirun notes and
    that harms nothing (it and its ssh both set the process group of the latter).
    """
    return ("errmgr:" in line and "[prterun-" in line) or "plm:ssh: Warning: setpgid" in line


def is_known(block: str) -> bool:
    """Whether a message block of mpirun is said again, with more, by ``explain``."""
    return _MESSAGE.search(" ".join(block.split())) is not None


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
    return f"failed ({state.lower()}, code {code})"


def explain(code: int, said: str, tails: Tails, placement: Placement, log_path: str) -> LaunchError:
    """The error for a job that mpirun ended with ``code`` (not 0)."""
    death = first_death(said)
    hosts = list(placement.counts)
    if death is None or (death.is_rank and "FAILED TO" in death.state):
        return LaunchError(
            Code.LAUNCHER,
            f"mpirun ended with code {code} before the job was over",
            f"starting on {', '.join(hosts[:8])}",
            f"its own words are above and in {log_path}",
            exit_code=code,
        )
    if not death.is_rank:
        lost = hosts[death.number] if death.number < len(hosts) else "of the job"
        return LaunchError(
            Code.LAUNCHER,
            f"the connection to host {lost} was lost",
            f"in mpirun, code {code}",
            f"see whether host {lost} is up and has memory left",
            exit_code=code,
        )
    lines = tails.of(death.number)
    quoted = "its last lines:" + "".join(f"\n  | {line}" for line in lines) if lines else "it wrote nothing"
    return LaunchError(
        Code.RANK,
        f"rank {death.number} {_manner(death.state, code)}",
        f"on host {placement.host_of(death.number)}",
        quoted,
        exit_code=code,
    )
