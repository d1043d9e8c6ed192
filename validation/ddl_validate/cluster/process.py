"""Running the system's tools, with a limit on every wait and their words in every error."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from .errors import ClusterError
from .requirements import program


def tool(*command: str, timeout: float = 20.0) -> str:
    """Run a system tool; its standard output. Raises ClusterError with what it said when it fails."""
    try:
        done = subprocess.run(
            [program(command[0]), *command[1:]], capture_output=True, text=True, timeout=timeout, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ClusterError(f"{' '.join(command)}: {error}") from error
    if done.returncode:
        raise ClusterError(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def start_time(pid: int) -> int | None:
    """When a process began, in clock ticks since boot; with the pid it names a process for good. None:
    gone.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])


def in_namespaces(pid: int, kinds: str, command: Sequence[str]) -> list[str]:
    """The command line that runs ``words`` in namespaces (letters as nsenter's: m u i n p) of process
    ``pid``.
    """
    return [program("nsenter"), "-t", str(pid), *(f"-{kind}" for kind in kinds), "--", *command]
