"""Starting a failed job again: from its script's latest checkpoint, on the hosts that can still take part."""

import os
import time
from collections.abc import Collection
from dataclasses import replace

from ..command_line.options import Options
from ..console import Console
from ..errors import Code, Failures, LaunchError
from ..job import Job, Restart, Survey, prepare, survey
from ..placement import tiers
from ..placement.slots import ranks_by_host
from ..runfolder import RunFolder
from ..start import command
from . import job_run
from .job_run import RunResult

_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 30.0


def run(first: Job, options: Options, folder: RunFolder, console: Console) -> None:
    """Run a job to a good end, again up to -max-restarts times. Raises the LaunchError of its last run."""
    until = time.monotonic() + options.timeout if options.timeout else None
    job = first
    while True:
        result = job_run.run(job, options, folder, console, _left(until))
        if result.error is None:
            return
        if not result.is_loss or job.restart.count >= (options.max_restarts or 0):
            raise result.error
        console.say(str(result.error))
        job = _again(result, job, first, options, folder, console, until)
        console.say(command.shown(job.line))


def _left(until: float | None) -> float | None:
    return None if until is None else max(0.001, until - time.monotonic())


def _again(
    result: RunResult,
    last: Job,
    first: Job,
    options: Options,
    folder: RunFolder,
    console: Console,
    until: float | None,
) -> Job:
    """The next job. A look that finds too few hosts counts as a restart; the next look is a while later."""
    assert result.error is not None and options.max_restarts is not None
    error, reason = result.error, f"{result.error.what}; {result.error.where}"
    for count in range(last.restart.count + 1, options.max_restarts + 1):
        pause = min(_FIRST_PAUSE_SECONDS * 2 ** min(count - 1, 10), _LONGEST_PAUSE_SECONDS)
        if until is not None and time.monotonic() + pause >= until:
            raise job_run.overtime(options)
        console.tell(f"looking at the hosts again in {pause:g} s")
        time.sleep(pause)
        try:
            found = _look_again(result.lost_host, first, options, console)
            job = _smaller(found, first, options, folder, console, Restart(count, _one_line(reason)))
        except LaunchError as failed:
            console.say(str(failed))
            error = failed
            continue
        if until is not None and time.monotonic() >= until:
            raise job_run.overtime(options)
        gone = [name for name in first.placed.counts if name not in job.placed.counts]
        without = f", without {', '.join(gone)}" if gone else ""
        console.warn(
            Code.RESTART,
            f"restart {count} of {options.max_restarts}, after: {_one_line(reason)}; "
            f"{len(job.placed.slots)} ranks on {', '.join(job.placed.counts)}{without}",
        )
        return job
    raise error


def _one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:400]


def _look_again(lost: str | None, first: Job, options: Options, console: Console) -> Survey:
    """The hosts that can take part now; all that the user named are looked at. Raises LaunchError where
    these are fewer than -min-hosts.
    """
    least = options.min_hosts or len(first.placed.counts)
    without: set[str] = set()
    # Each look may find another host that has just gone; hosts that come and go must not keep us here.
    for _ in range(4):
        try:
            found = survey(options, console, without)
        except Failures as failed:
            without |= set(failed.hosts)
            _check_count(first, without, least, failed)
            console.say(str(failed))
            continue
        known = options.rankfile or lost is None or lost in found.facts or lost in without
        if not known and len(found.hosts.hosts) > least:
            # mpirun has lost this host, and nothing here shows that it is well.
            without.add(str(lost))
            found = survey(options, console, without)
        return found
    raise LaunchError(
        Code.RESTART, "the hosts change all the time", "before a restart", "see which hosts are well"
    )


def _check_count(first: Job, without: Collection[str], least: int, failed: LaunchError) -> None:
    names = [host.name for host in first.survey.hosts.hosts]
    left = [name for name in names if name not in without]
    if len(left) >= least and left:
        return
    raise LaunchError(
        Code.RESTART,
        f"{len(left)} of {len(names)} hosts can take part, and a restart needs {least}",
        "in -min-hosts" if least else f"in {first.survey.hosts.origin}",
        f"lower -min-hosts, or repair these: {failed}",
    )


def _smaller(
    found: Survey, first: Job, options: Options, folder: RunFolder, console: Console, restart: Restart
) -> Job:
    """The job on the hosts that were found. Where these are fewer, there are as many ranks of -np as fit, and
    what was said about all hosts does not count.
    """
    if len(found.hosts.hosts) < len(first.survey.hosts.hosts):
        if options.np is not None:
            limits = ranks_by_host(found.hosts, found.facts, None, options.accelerators)
            before = first.placed.counts
            room = sum(max(limit, before.get(name, 0)) for name, limit in limits.items())
            options = replace(options, np=min(options.np, room))
        used = list(ranks_by_host(found.hosts, found.facts, options.np, options.accelerators))
        if len(used) < len(first.placed.counts):
            letter = tiers.letter(options, os.environ.get("DDL_OPTIONS", ""))
            options = replace(options, nodes=None, racks=None, aisles=None, mode=letter)
    return prepare(options, found, folder, console, restart)
