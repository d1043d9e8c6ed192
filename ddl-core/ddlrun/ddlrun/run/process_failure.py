"""How a job failed: what the launcher said of it, as one error."""

import os
import re
import signal
from collections.abc import Sequence

from ..errors import Code, LaunchError
from ..placement.slots import Placement
from ..rank_variables import OF_OPEN_MPI, mpi_settings
from ..start.launcher_messages import LauncherMessages
from ..tasks.plan import Task
from .output import Tails

_MPI_INIT = re.compile(
    r"\bMPI_Init|mpi_init|before MPI_INIT|mca_base_framework_open|able to be opened in the \w+ framework"
)


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


def _foreign_settings() -> list[str]:
    """The user's settings of Open MPI, as what may be to blame; empty where there are none."""
    settings = mpi_settings(os.environ)
    return [f"{OF_OPEN_MPI}, which may be for another one: {', '.join(settings)}"] if settings else []


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
            "; ".join([messages.hint or f"its own words are above and in {log_path}", *_foreign_settings()]),
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
    if any(_MPI_INIT.search(line) for line in lines):
        lines += _foreign_settings()
    quoted = "its last lines:" + "".join(f"\n  | {line}" for line in lines) if lines else "it wrote nothing"
    task = next((f" ({task})" for task in tasks if task.rank == death.number), "")
    return LaunchError(
        Code.RANK,
        f"rank {death.number}{task} {_manner(death.state, code)}",
        f"on host {placement.host_of(death.number)}",
        quoted,
        exit_code=exit_code,
    )
