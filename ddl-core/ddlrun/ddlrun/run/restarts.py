"""Starting a failed job again: from its script's latest checkpoint, on the hosts that can still take part."""

import gc
import time
from collections.abc import Collection
from dataclasses import replace

from ..command_line.options import Options
from ..command_line.rank_range import RankRange
from ..console import Console
from ..errors import Code, Failures, LaunchError
from ..job import Job, Restart
from ..placement.slots import ranks_by_host
from ..preparation import prepare, without_groups
from ..runfolder import RunFolder
from ..start import command
from ..survey import Survey, survey_hosts
from . import job_run
from .job_run import RunResult

_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 30.0


def run(first: Job, options: Options, folder: RunFolder, console: Console) -> None:
    """Run a job to a good end, again up to -max-restarts times after failures, and whenever hosts came back
    that a range of ranks has room for. Raises the LaunchError of its last run.
    """
    until = time.monotonic() + options.timeout if options.timeout else None
    job = first
    gc.freeze()
    gc.enable()  # which bin/ddlrun has switched off for the start
    while True:
        result = job_run.run(job, options, folder, console, _left(until))
        if result.error is not None:
            if not result.is_loss or job.restart.failures >= (options.max_restarts or 0):
                raise result.error
            console.say(str(result.error))
        elif not result.grown:
            return
        job = _again(result, job, first, options, folder, console, until)
        console.say(command.as_typed(job.line))


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
    """The next job. A look that finds too few hosts counts as a failure; the next look is a while later."""
    assert options.max_restarts is not None
    error = result.error
    reason = f"{error.problem}; {error.where}" if error else result.grown
    lost, restart = result.lost_host, last.restart
    while True:
        restart = Restart(restart.count + 1, _one_line(reason), restart.failures + (error is not None))
        if error is not None and restart.failures > options.max_restarts:
            raise error
        # After a failure what is wrong has to pass; hosts that came back are there.
        pause = _pause(restart.failures) if error is not None else 0.0
        if until is not None and time.monotonic() + pause >= until:
            raise job_run.overtime(options)
        if pause:
            console.tell(f"looking at the hosts again in {pause:g} s")
            time.sleep(pause)
        try:
            survey = _look_again(lost, first, options, console)
            job = _smaller(survey, first, options, folder, console, restart)
        except LaunchError as failed:
            console.say(str(failed))
            error = failed
            continue
        if until is not None and time.monotonic() >= until:
            raise job_run.overtime(options)
        console.warn(Code.RESTART, _announcement(result, first, job, options.max_restarts))
        return job


def _pause(failures: int) -> float:
    return min(_FIRST_PAUSE_SECONDS * 2.0 ** min(failures - 1, 10), _LONGEST_PAUSE_SECONDS)


def _announcement(result: RunResult, first: Job, job: Job, most: int) -> str:
    gone = [host.name for host in job.survey.named if host.name not in job.placed.counts]
    if job.np is None:
        gone = [name for name in first.placed.counts if name not in job.placed.counts]
    without = f", without {', '.join(gone)}" if gone else ""
    which = f"restart {job.restart.failures} of {most}" if result.error else "restart with more ranks"
    return (
        f"{which}, after: {job.restart.reason}; "
        f"{len(job.placed.slots)} ranks on {', '.join(job.placed.counts)}{without}"
    )


def _one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:400]


def _look_again(lost: str | None, first: Job, options: Options, console: Console) -> Survey:
    """The hosts that can take part now; all that the user named are looked at. Raises LaunchError where
    these are fewer than -min-hosts.
    """
    # A range of ranks says itself how few will do.
    ranged = isinstance(options.np, RankRange)
    least = options.min_hosts or (1 if ranged else len(first.placed.counts))
    without: set[str] = set()
    # Each look may find another host that has just gone; hosts that come and go must not keep us here.
    for _ in range(4):
        try:
            current = survey_hosts(options, console, without)
        except Failures as failed:
            without |= set(failed.hosts)
            _check_count(first, without, least, failed)
            console.say(str(failed))
            continue
        if ranged:
            _check_count(first, {host.name for host in current.missing}, least, None)
        is_settled = options.rankfile or lost is None or lost in current.facts or lost in without
        if not is_settled and len(current.hosts.hosts) > least:
            # mpirun has lost this host, and nothing here shows that it is well.
            without.add(str(lost))
            current = survey_hosts(options, console, without)
        return current
    raise LaunchError(
        Code.RESTART, "the hosts change all the time", "before a restart", "see which hosts are well"
    )


def _check_count(first: Job, without: Collection[str], least: int, failed: LaunchError | None) -> None:
    names = [host.name for host in (first.survey.named or first.survey.hosts.hosts)]
    remaining = [name for name in names if name not in without]
    if len(remaining) >= least and remaining:
        return
    raise LaunchError(
        Code.RESTART,
        f"{len(remaining)} of {len(names)} hosts can take part, and a restart needs {least}",
        "in -min-hosts" if least else f"in {first.survey.hosts.origin}",
        f"lower -min-hosts, or repair these: {failed or ', '.join(without)}",
    )


def _smaller(
    survey: Survey, first: Job, options: Options, folder: RunFolder, console: Console, restart: Restart
) -> Job:
    """The job on the hosts of a survey. Where these are fewer, there are as many ranks of -np as fit, and
    what was said about all hosts does not count.
    """
    if isinstance(options.np, RankRange):
        return prepare(options, survey, folder, console, restart)
    if len(survey.hosts.hosts) < len(first.survey.hosts.hosts):
        np = options.np
        if np is not None:
            limits = ranks_by_host(survey.hosts, survey.facts, None, options.accelerators)
            before = first.placed.counts
            room = sum(max(limit, before.get(name, 0)) for name, limit in limits.items())
            np = min(np, room)
            options = replace(options, np=np)
        used = list(ranks_by_host(survey.hosts, survey.facts, np, options.accelerators))
        if len(used) < len(first.placed.counts):
            options = without_groups(options)
    return prepare(options, survey, folder, console, restart)
