"""Hosts that come back while a job runs with fewer ranks than it may (`-np MIN:MAX`): looking for them, and
saying when to end the run, so that it starts again with more ranks.

The looking is done by a process of its own: what ends a job's processes on this host spares the children that
were there before, and ssh to a host that is down must not delay the job's end.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from .. import processes
from ..checks import preflight
from ..checks.inventory import HostInventory
from ..checks.remote_probe import ProbeSettings, visible_gpus
from ..command_line.options import Options
from ..errors import Code, LaunchError
from ..hosts.host_list import HostList
from ..job import Job
from ..placement import gpu_use, rank_range

# Few jobs may grow: what takes long to load is loaded for those.
if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

VARIABLE = "DDLRUN_GROW_SECONDS"
_SECONDS = 60.0
_POLL_SECONDS = 0.5
#: What the ranks have to end by themselves, where -grace says nothing.
GRACE_SECONDS = 30.0
# A folder of checkpoints with more entries is looked at only so far.
_MOST_ENTRIES = 10_000


@dataclass(frozen=True)
class _Task:
    job: Job
    options: Options
    interval: float
    log: Callable[[str], None]


def interval() -> float:
    """Seconds between two looks. Raises LaunchError where the variable is wrong."""
    text = os.environ.get(VARIABLE)
    if not text:
        return _SECONDS
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 86400:
        raise LaunchError(
            Code.USAGE,
            f"{VARIABLE}={text!r} is no time from 0.1 to 86400 seconds",
            "in the environment",
            "correct or unset it",
            exit_code=2,
        )
    return seconds


def can_grow(job: Job, options: Options) -> bool:
    """Whether to look for more hosts while this job runs: it may be started again, has fewer ranks than it
    may, and hosts of the user's own list are missing. A scheduler does not give a lost host back.
    """
    if job.np is None or options.max_restarts is None or options.skip_checks:
        return False
    return (
        len(job.placed.slots) < job.np.most and bool(job.survey.missing) and job.survey.hosts.explicit_slots
    )


class Growth:
    """Looks for the missing hosts of a job while it runs; a context manager. reason: why to end the run."""

    def __init__(self, job: Job, options: Options, log: Callable[[str], None]) -> None:
        self.reason = ""
        self._task = _Task(job, options, interval(), log)
        self._child: BaseProcess | None = None
        self._answers: Connection | None = None

    def __enter__(self) -> "Growth":
        import multiprocessing

        context = multiprocessing.get_context("fork")
        answers, telling = context.Pipe(duplex=False)
        self._child = context.Process(target=_look, args=(self._task, answers, telling), daemon=True)
        self._child.start()
        telling.close()
        self._answers = answers
        return self

    def __exit__(self, *_: object) -> None:
        assert self._child and self._answers
        self._answers.close()
        # With its ssh; its group is its own a moment after its start.
        processes.send(signal.SIGKILL, -int(self._child.pid or 0))
        self._child.kill()
        self._child.join()

    def is_due(self) -> bool:
        """Whether enough hosts came back, and the run is to end now."""
        if self.reason or self._answers is None:
            return bool(self.reason)
        with contextlib.suppress(EOFError, OSError):
            if self._answers.poll():
                self.reason = str(self._answers.recv())
        return bool(self.reason)


def _look(task: _Task, answers: "Connection", telling: "Connection") -> None:
    """The process that looks, until it has something to tell or ddlrun is gone."""
    answers.close()
    processes.detach()
    owner = os.getppid()
    folder = Path(task.options.checkpoint_dir) if task.options.checkpoint_dir else None
    candidates: tuple[str, ...] = ()
    before = None
    looked = time.monotonic()
    while os.getppid() == owner:
        time.sleep(min(_POLL_SECONDS, task.interval))
        if time.monotonic() >= looked + task.interval:
            came_back = look(task.job, task.options, task.log)
            looked = time.monotonic()
            if came_back and not candidates:
                before = newest(folder)
                task.log(f"{', '.join(came_back)} can take part again")
            candidates = came_back
        if candidates and (folder is None or newest(folder) != before):
            telling.send(f"{', '.join(candidates)} can take part again")
            return


def look(job: Job, options: Options, log: Callable[[str], None]) -> tuple[str, ...]:
    """The missing hosts that can take part, where the job would get more ranks with them; else none."""
    assert job.np
    missing = replace(job.survey.hosts, hosts=job.survey.missing)
    try:
        visible = visible_gpus(options.x, os.environ)
        inspection = preflight.Inspection(ProbeSettings(visible=visible))
        report = preflight.look_at(missing, set(), job.survey.environment, log, inspection)
    except LaunchError as error:
        log(f"looking for hosts: {error}")
        return ()
    gpu_use.settle(report, gpu_use.of(options, job.survey.environment))
    able = {name: inventory for name, inventory in report.facts.items() if name not in report.failed}
    available_slots = room_with(job, able, options.accelerators)
    return tuple(able) if able and rank_range.grows(job.np, len(job.placed.slots), available_slots) else ()


def room_with(job: Job, able: dict[str, HostInventory], accelerators: int | None) -> int:
    """How many ranks the hosts of a job take together with others."""
    facts = {**job.survey.facts, **able}
    names = {host.name for host in job.survey.hosts.hosts} | set(able)
    hosts = tuple(host for host in job.survey.named if host.name in names)
    return rank_range.room(HostList(hosts, job.survey.hosts.origin), facts, accelerators)


def newest(folder: Path | None) -> tuple[int, int] | None:
    """What changes when something is written below a folder: the latest time, and the number of entries."""
    if folder is None:
        return None
    latest, entries = 0, 0
    for place, _, names in os.walk(folder):
        for path in (place, *(os.path.join(place, name) for name in names)):
            with contextlib.suppress(OSError):
                latest = max(latest, os.stat(path).st_mtime_ns)
            entries += 1
        if entries > _MOST_ENTRIES:
            break
    return latest, entries
