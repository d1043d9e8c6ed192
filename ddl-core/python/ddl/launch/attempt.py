"""One run of a prepared job: started, watched, cleaned up, and how it ended told as an error or none."""

import time

from . import cleanup, running
from .console import Console, say
from .errors import Code, LaunchError
from .failure import explain
from .job import Job
from .options import Options
from .runfolder import RunFolder
from .running import Outcome


def run(job: Job, options: Options, folder: RunFolder, console: Console) -> None:
    """Run the job to its end. Raises LaunchError where that is not a good one."""
    began = time.monotonic()
    environment = job.survey.environment
    outcome = running.run(
        job.line, job.variables, environment, options.timeout, console.log, notes=options.verbose
    )
    killed: dict[str, int | None] = {"this host": outcome.leftovers}
    if outcome.code or outcome.signal or outcome.timed_out or outcome.story.first:
        reached = [name for name in job.remote_hosts if name in job.survey.facts]
        killed |= cleanup.sweep(reached, environment, folder.job, console.log)
    for host, count in killed.items():
        if count:
            console.warn(
                Code.LEFTOVERS, f"{count} processes of the job were still running on {host} and were killed"
            )
    console.tell(f"ended after {time.monotonic() - began:.1f} s with code {outcome.code}")
    if options.verbose:
        for note in outcome.notes:
            say(f"[DDL] {note}")
    failure = _failure(outcome, job, options, folder)
    if failure is not None:
        raise failure


def _failure(outcome: Outcome, job: Job, options: Options, folder: RunFolder) -> LaunchError | None:
    if outcome.timed_out:
        return LaunchError(
            Code.TIMEOUT,
            f"the job took longer than {options.timeout:g} s and was ended",
            "in -timeout",
            "raise the limit, or see where the ranks wait",
            exit_code=124,
        )
    if outcome.signal is not None:
        return LaunchError(
            Code.INTERRUPTED,
            f"the job was ended by signal {outcome.signal} to ddlrun",
            "on this host",
            "start it again",
            exit_code=128 + outcome.signal,
        )
    if outcome.code or outcome.story.first:
        return explain(
            outcome.code, outcome.story, outcome.tails, job.placed, job.remote_hosts, str(folder.log_path)
        )
    return None
