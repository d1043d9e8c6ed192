"""No process of a job is left anywhere: a guard of ddlrun itself, and a look at every host after a bad end.

On the hosts the job's daemons are kept by processes' `run` (see start/launch_agent.py), which needs no
connection. The look afterwards, by ssh, is for where that was killed or cannot act.
"""

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from .. import processes
from ..checks.remote_probe import answer_of
from ..environment import Environment

# Of one host, and of all of them. One that is slow to be reached does not keep the others waiting.
_HOST_SECONDS = 4.0
_ALL_SECONDS = 9.0
_PARALLEL = 256


@contextlib.contextmanager
def guarded(environment: Environment, job: str, launcher: int) -> Iterator[int | None]:
    """While this lasts, a process of its own ends the job should ddlrun be killed; its pid, None without."""
    try:
        guard = subprocess.Popen(
            [str(environment.python), "-I", "-S", processes.__file__, "watch", job, str(launcher)],
            # Not of the job, even where ddlrun was itself started in one.
            env={name: value for name, value in os.environ.items() if name != processes.VARIABLE},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
    except OSError:
        yield None  # no process to be had is a poor reason to refuse a job that runs already
        return
    try:
        yield guard.pid
    finally:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            guard.communicate(b"done", timeout=2)


def _on_host(
    deed: str, host: str, environment: Environment, job: str, source: str, until: float
) -> int | None:
    seconds = min(_HOST_SECONDS, until - time.monotonic())
    if seconds <= 0:
        return None
    nonce = os.urandom(8).hex()
    try:
        return int(answer_of(host, environment, source, [deed, job, nonce], nonce, seconds))
    except (OSError, ValueError, TypeError, subprocess.TimeoutExpired):
        return None


def sweep(
    hosts: Sequence[str], environment: Environment, job: str, log: Callable[[str], None]
) -> dict[str, int | None]:
    """End what is left of the job on other hosts, all at once; how many processes, None where a host did not
    answer in time.
    """
    ended = _on_hosts("sweep", hosts, environment, job)
    if ended:
        log(f"looked for processes of the job on {ended}")
    return ended


def ask_ranks(hosts: Sequence[str], environment: Environment, job: str, log: Callable[[str], None]) -> None:
    """Send SIGTERM to all ranks of the job, here and on other hosts, so that they may end by themselves."""
    local_count = processes.ask_ranks(job)
    log(f"sent SIGTERM to {local_count} ranks here and to {_on_hosts('ask', hosts, environment, job)}")


def _on_hosts(deed: str, hosts: Sequence[str], environment: Environment, job: str) -> dict[str, int | None]:
    if not hosts:
        return {}
    source = Path(processes.__file__).read_text()
    until = time.monotonic() + _ALL_SECONDS
    from concurrent.futures import ThreadPoolExecutor  # brings logging with it

    with ThreadPoolExecutor(min(_PARALLEL, len(hosts))) as pool:
        counts = pool.map(lambda host: _on_host(deed, host, environment, job, source, until), hosts)
        return dict(zip(hosts, counts, strict=True))
