"""One run of a prepared job: started, watched, cleaned up, and how it ended told as an error or none."""

import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..command_line.options import Options
from ..console import Console, clear_progress, say, show_progress
from ..errors import Code, LaunchError
from ..job import Job
from ..report.flight_record import fetch
from ..runfolder import RunFolder
from . import cleanup
from . import growth as growing
from .growth import Growth, can_grow
from .launcher_process import LauncherProcess, Limits, Outcome
from .output_streams import OutputStreams, RankFiles
from .process_failure import explain, is_loss, lost_host


@dataclass(frozen=True)
class RunResult:
    """How a run ended. error: None for a good end. is_loss: a rank, a host or mpirun was lost, so that
    another run may do better. lost_host: the host, where it was one. grown: which hosts came back, where the
    run was ended for that.
    """

    error: LaunchError | None
    is_loss: bool = False
    lost_host: str | None = None
    grown: str = ""


def run(job: Job, options: Options, folder: RunFolder, console: Console, limit: float | None) -> RunResult:
    """Run the job to its end, for at most ``limit`` seconds."""
    start_time = time.monotonic()
    environment = job.survey.environment
    output_streams = _output_streams(job, options, console)

    def ask() -> None:
        if not job.launcher.ask_ranks(job.variables, console.log):
            cleanup.ask_ranks(job.remote_hosts, environment, folder.job, console.log)

    show_progress(f"[DDL] starting {len(job.placed.slots)} ranks on {len(job.placed.counts)} hosts")
    growth = Growth(job, options, console.log) if can_grow(job, options) else None
    try:
        # Before the start: what is a child of ddlrun then is none of the job's.
        with growth or contextlib.nullcontext():
            limits = Limits(
                timeout=limit,
                grace=options.grace or 0.0,
                ask=ask if job.launcher.kills_at_once else None,
                is_due=growth.is_due if growth else None,
                due_grace=options.grace or growing.GRACE_SECONDS,
            )
            outcome = LauncherProcess(job, limits, console.log, output_streams, notes=options.verbose).run()
    finally:
        output_streams.close()
        clear_progress()
    killed: dict[str, int | None] = {"this host": outcome.leftovers}
    is_growing = outcome.stopped and outcome.signal is None and not outcome.timed_out
    if outcome.code or outcome.signal or outcome.timed_out or outcome.messages.first:
        reached = [name for name in job.remote_hosts if name in job.survey.facts]
        killed |= cleanup.sweep(reached, environment, folder.job, console.log)
        if not is_growing:
            _tell_records(job, options, killed, console)
    else:
        fetch.remove(str(job.records))
    for host, count in killed.items():
        if count:
            console.warn(
                Code.LEFTOVERS, f"{count} processes of the job were still running on {host} and were killed"
            )
    console.tell(f"ended after {time.monotonic() - start_time:.1f} s with code {outcome.code}")
    if options.verbose:
        for note in outcome.notes:
            say(f"[DDL] {note}")
    if growth and is_growing:
        return RunResult(None, grown=growth.reason)
    error = _error(outcome, job, options, folder)
    ended_on_request = outcome.timed_out or outcome.signal is not None
    return RunResult(
        error,
        is_loss=error is not None
        and not ended_on_request
        and is_loss(outcome.messages, options.ps is not None),
        lost_host=lost_host(outcome.messages, job.remote_hosts),
    )


def _tell_records(job: Job, options: Options, answered: Mapping[str, int | None], console: Console) -> None:
    """Say in which call the ranks stopped, as far as they have left records. answered: None for a host that
    did not when it was looked at last; it is not waited for again.
    """
    from ..report.flight_record import collect  # of a failure alone

    hosts = [name for name in job.remote_hosts if answered.get(name) is not None]
    folder = job.records
    try:
        if not options.flight_record and fetch.VARIABLE not in os.environ:
            folder = job.folder / "flight-record"
            silent = [name for name in job.remote_hosts if name not in hosts]
            silent += collect.gather(job.records, folder, hosts, job.survey.environment, console.log)
            if silent and folder.is_dir():
                console.warn(
                    Code.FOLDER,
                    f"flight records may still be on {', '.join(silent[:8])}, which ssh did not reach, in "
                    f"{job.records}; -flight-record names a shared folder for them",
                )
        collect.tell(folder)
    except OSError as error:
        # Nothing that is merely told must hide how the job ended.
        console.log(f"no flight record: {error}")


def _output_streams(job: Job, options: Options, console: Console) -> OutputStreams:
    files = None
    if options.output_folder:
        folder = Path(options.output_folder)
        if job.restart.count:
            folder /= f"restart-{job.restart.count}"
        files = RankFiles(folder, len(job.placed.slots), lambda text: console.warn(Code.FOLDER, text))
    hosts = [slot.host for slot in job.placed.slots] if options.verbose else None
    return OutputStreams(options.tag_output, hosts, files)


def overtime(options: Options) -> LaunchError:
    """The error for a job that took longer than it may."""
    return LaunchError(
        Code.TIMEOUT,
        f"the job took longer than {options.timeout:g} s and was ended",
        "in -timeout",
        "raise the limit, or see where the ranks wait",
        exit_code=124,
    )


def _error(outcome: Outcome, job: Job, options: Options, folder: RunFolder) -> LaunchError | None:
    if outcome.timed_out:
        return overtime(options)
    if outcome.signal is not None:
        return LaunchError(
            Code.INTERRUPTED,
            f"the job was ended by signal {outcome.signal} to ddlrun",
            "on this host",
            "start it again",
            exit_code=128 + outcome.signal,
        )
    if outcome.code or outcome.messages.first:
        return explain(
            outcome.code,
            outcome.messages,
            outcome.tails,
            job.placed,
            job.remote_hosts,
            str(folder.log_path),
            job.tasks,
        )
    if outcome.lost:
        return LaunchError(
            Code.FOLDER,
            f"the job ended well, but a part of its output is lost: {outcome.lost[0].strerror}",
            "in what ddlrun's output goes to",
            "make room there, or write it elsewhere",
        )
    return None
