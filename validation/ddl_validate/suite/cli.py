"""The command `wmlce validate`."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import math
import os
import re
import shlex
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from ..allreduce.results import dump
from ..common.console import output_console
from ..common.files import write_atomic
from . import expect, history, report
from .document import Document, read
from .errors import ValidateError
from .expect import Reference, packaged_references
from .history import History
from .levels import BURN_IN, LEVELS, level_of
from .model import EXIT_CODES, CheckResult, Key, Kind, Severity, Status
from .registry import Check, checks
from .run import Plan, Run

NOTHING = 3
_STYLES = {Status.PASSED: "green", Status.FAILED: "red", Status.SKIPPED: "yellow", Status.BROKEN: "red"}
_COLOURS = {Severity.WARN: "yellow", Severity.FAIL: "red", Severity.DRAIN: "red"}
_LONGEST_REASON = 200  # characters; Slurm keeps a reason of any length, and shows the beginning
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def _epilog() -> str:
    levels = "\n".join(f"  {level.name:12}{level.title}" for level in LEVELS.values())
    listing = "\n".join(f"  {name:12}{check.title}" for name, check in checks().items())
    references = "\n".join(f"  {name:16}{title}" for name, title in packaged_references().items())
    codes = "\n".join(f"  {code:<5}{kind}" for kind, code in EXIT_CODES.items())
    return f"""\
levels:
{levels}

checks, in this order:
{listing}

references:
{references}

exit codes (of several findings the most severe one decides):
  0    nothing was found, or warnings alone
  2    the command line is wrong
  3    there is nothing to validate on (no hosts, no environment), or the result cannot be kept
{codes}
  130, 143  stopped by Ctrl-C or SIGTERM; what was found is kept

examples:
  wmlce validate                                    this machine
  wmlce validate -H host1,host2,host3,host4         four hosts, by ssh
  sbatch … wmlce validate --level daily             all hosts of the job
  wmlce validate --history DIR --output report      compare with the runs before; a page to look at
  wmlce validate --baseline good.json               against a run of a good day
  wmlce validate --reference dgx-h100               against published figures of such hosts
  wmlce validate --only environment,imports         these alone
  wmlce validate --drain-reason                     HOST and REASON, for a health check

docs/cluster/validate.md has a section for every kind of finding.
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="wmlce validate",
        description="Prove that the hosts compute rightly and train as fast as they should, or name the "
        "host, link or GPU that is at fault. It starts its programs by ddlrun.",
        epilog=_epilog(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    _add_hosts(parser)
    _add_scope(parser)
    _add_expectations(parser)
    _add_results(parser)
    return parser


def _add_hosts(parser: argparse.ArgumentParser) -> None:
    where = parser.add_argument_group("hosts (default: those of the scheduler's job, else this machine)")
    where.add_argument("-H", "--hosts", metavar="HOST[:RANKS],…", help="these hosts")
    where.add_argument("--hostfile", metavar="FILE", type=Path, help="the hosts of a file")
    where.add_argument("--exclude", metavar="HOST,…", default="", help="leave these out")
    where.add_argument(
        "--racks", metavar="N", type=int, help="the hosts, in their order, are in N equal racks"
    )
    where.add_argument(
        "--ranks",
        metavar="N",
        type=int,
        help="of each host (default: its GPUs, or its cores where it has none)",
    )
    where.add_argument(
        "--ddlrun", metavar="WORDS", default="", help="more options of ddlrun, such as '-interface ib0'"
    )
    where.add_argument(
        "--prefix", metavar="DIR", type=Path, default=Path(sys.prefix), help="environment (default: this one)"
    )


def _add_scope(parser: argparse.ArgumentParser) -> None:
    scope = parser.add_argument_group("what is checked")
    scope.add_argument("--level", choices=tuple(LEVELS), default="smoke", help="default: %(default)s")
    scope.add_argument("--hours", metavar="H", type=float, help="of a burn-in (default: 24)")
    scope.add_argument(
        "--sustained",
        metavar="SECONDS",
        type=float,
        help="of load without a rest, 0 for none (default: "
        + ", ".join(f"{level.sustained:g} at {level.name}" for level in LEVELS.values())
        + ")",
    )
    scope.add_argument(
        "--rails",
        metavar="PORT,…",
        default="",
        help="measure each of these network ports by itself: interfaces (eth0), or ports for RDMA "
        "(mlx5_0:1); default: those of one rate that every host has",
    )
    scope.add_argument("--only", metavar="CHECK,…", default="", help="these checks")
    scope.add_argument("--skip", metavar="CHECK,…", default="", help="all but these")
    scope.add_argument(
        "--log-hours",
        metavar="H",
        type=float,
        default=24.0,
        help="errors of GPUs in the kernel's log of the last hours count (default: %(default)g)",
    )
    scope.add_argument(
        "--skip-figure",
        metavar="NAME,…",
        default="",
        help="measure these figures, read these facts, and judge them not (names as in the report)",
    )


def _add_expectations(parser: argparse.ArgumentParser) -> None:
    expected = parser.add_argument_group("what is expected (default: what the measured links predict)")
    expected.add_argument(
        "--baseline",
        metavar="FILE",
        type=Path,
        help="of a good day: its validation.json, or --save-baseline's",
    )
    expected.add_argument(
        "--reference",
        metavar="NAME|FILE",
        help="figures that such hosts must reach: one of the list below, or a file; goes before a baseline",
    )
    expected.add_argument(
        "--tolerance",
        metavar="SHARE",
        type=float,
        help="of an expected figure that may be missing (default: "
        + ", ".join(f"{level.tolerance:g} at {level.name}" for level in LEVELS.values())
        + ")",
    )


def _add_results(parser: argparse.ArgumentParser) -> None:
    results = parser.add_argument_group("results")
    results.add_argument(
        "--output", metavar="DIR", type=Path, help="index.html, validation.json, figures.csv, junit.xml, logs"
    )
    results.add_argument(
        "--resume", action="store_true", help="continue the run in --output that was cut off"
    )
    results.add_argument(
        "--history", metavar="DIR", type=Path, help="record every run there, and compare with those before"
    )
    results.add_argument(
        "--save-baseline", metavar="FILE", type=Path, help="write what good runs (--history) let one expect"
    )
    printed = results.add_mutually_exclusive_group()
    printed.add_argument("--json", action="store_true", help="print the result as JSON")
    printed.add_argument(
        "--drain-reason",
        action="store_true",
        help="print HOST, tab, REASON for each host to drain, and no more",
    )
    results.add_argument(
        "--site", metavar="NAME", default="", help="the cluster's name, for report and history"
    )


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def _chosen(parser: argparse.ArgumentParser, options: argparse.Namespace) -> dict[str, Check]:
    available = checks()
    selected, unwanted = _names(options.only), _names(options.skip)
    for option, names in (("--only", selected), ("--skip", unwanted)):
        for name in names:
            if name not in available:
                parser.error(f"{option} {name!r}: no such check; there are: {', '.join(available)}")
    chosen = {
        name: check
        for name, check in available.items()
        if (not selected or name in selected) and name not in unwanted
    }
    if not chosen:
        parser.error("--only and --skip leave no check")
    return chosen


def _where(
    parser: argparse.ArgumentParser, options: argparse.Namespace
) -> tuple[tuple[str, ...], int | None]:
    """ddlrun's words for the hosts, and the ranks of each where -H says so."""
    if options.hosts is not None and options.hostfile is not None:
        parser.error("-H and --hostfile exclude each other")
    if options.hostfile is not None:
        try:
            options.hostfile.read_text()
        except (OSError, ValueError) as error:
            parser.error(f"--hostfile {options.hostfile}: {getattr(error, 'strerror', None) or error}")
        return ("-hostfile", str(options.hostfile.absolute())), None
    if options.hosts is None:
        return (), None
    entries = [part.strip().partition(":") for part in options.hosts.split(",")]
    for name, colon, slots in entries:
        if not _NAME.fullmatch(name) or (colon and not re.fullmatch(r"[1-9][0-9]*", slots)):
            parser.error(f"-H {options.hosts!r}: write names with commas: host1,host2 or host1:4,host2:4")
    slots_of_hosts = {int(slots) for _, _, slots in entries if slots}
    if len(slots_of_hosts) > 1:
        parser.error(f"-H {options.hosts!r}: all hosts are validated with the same number of ranks")
    return ("-H", options.hosts), slots_of_hosts.pop() if slots_of_hosts else None


def _check_numbers(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if options.tolerance is not None and not 0 < options.tolerance < 1:
        parser.error(f"--tolerance {options.tolerance:g}: a share between 0 and 1")
    for name in ("racks", "ranks"):
        value = getattr(options, name)
        if value is not None and value < 1:
            parser.error(f"--{name} {value}: 1 or more")
    if options.hours is not None and options.level != BURN_IN:
        parser.error(f"--hours is for --level {BURN_IN}")
    if options.hours is not None and not 0 < options.hours < math.inf:
        parser.error(f"--hours {options.hours:g}: more than 0")
    if options.sustained is not None and not 0 <= options.sustained < math.inf:
        parser.error(f"--sustained {options.sustained:g}: 0 or more seconds")
    if not 0 < options.log_hours < math.inf:
        parser.error(f"--log-hours {options.log_hours:g}: more than 0")
    if options.resume and options.output is None:
        parser.error("--resume needs --output, the folder of the run to go on with")
    if options.save_baseline is not None and options.history is None:
        parser.error("--save-baseline needs --history, the runs to learn from")


def _plan(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> tuple[argparse.Namespace, Plan]:
    options = parser.parse_args(arguments)
    _check_numbers(parser, options)
    where, slots = _where(parser, options)
    try:
        ddlrun_options = tuple(shlex.split(options.ddlrun))
    except ValueError as error:
        parser.error(f"--ddlrun {options.ddlrun!r}: {error}")
    level = level_of(options.level)
    if options.sustained is not None:
        level = replace(level, sustained=options.sustained)
    return options, Plan(
        prefix=options.prefix.absolute(),
        where=where,
        options=ddlrun_options,
        exclude=tuple(_names(options.exclude)),
        checks=_chosen(parser, options),
        level=level,
        budget=level.budget if options.hours is None else options.hours * 3600,
        tolerance=options.tolerance or level.tolerance,
        log_hours=options.log_hours,
        rails=tuple(_names(options.rails)),
        skip_figures=tuple(_names(options.skip_figure)),
        folder=Path(),
        racks=options.racks,
        ranks=options.ranks or slots,
        site=options.site,
        command=shlex.join(["wmlce", "validate", *arguments]),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parser = _parser()
    options, plan = _plan(parser, sys.argv[1:] if arguments is None else arguments)
    _end_on_signals()
    quiet = options.json or options.drain_reason
    console = Console(file=sys.stderr, highlight=False) if quiet else output_console()
    try:
        return _Command(options, plan, console).run()
    except ValidateError as error:
        print(f"wmlce validate: {error}", file=sys.stderr)
    except OSError as error:
        print(f"wmlce validate: {error.filename or 'error'}: {error.strerror}", file=sys.stderr)
    except KeyboardInterrupt:
        print("wmlce validate: stopped before anything was found", file=sys.stderr)
        return 128 + signal.SIGINT
    return NOTHING


def _end_on_signals() -> None:
    """What ends a job is an exception, by which everything that was started is ended."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup's stays ignored
            signal.signal(number, lambda got, _: sys.exit(128 + got))


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """ValidateError where another run writes to this folder, such as a health check that is still at work."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise ValidateError(
            f"another validation writes to {folder.parent}; wait until it ends, or name another --output"
        ) from None
    except OSError:
        pass  # a file system without locks
    try:
        yield
    finally:
        os.close(handle)


class _Command:
    """One call of the command: reads what is there of before, runs, keeps and tells."""

    def __init__(self, options: argparse.Namespace, plan: Plan, console: Console) -> None:
        self.options, self.plan, self.console = options, plan, console
        self.output: Path | None = options.output.absolute() if options.output is not None else None

    def run(self) -> int:
        if not (self.plan.prefix / "bin/ddlrun").exists():
            raise ValidateError(f"{self.plan.prefix} has no ddlrun; name an environment by --prefix")
        references = self._references()
        before = self._history()
        with self._folder() as folder:
            earlier = self._earlier()
            run = Run(
                replace(self.plan, folder=folder, references=references), self._keep, self._show, self._say
            )
            stopped = 0
            try:
                run.go(earlier)
            except KeyboardInterrupt:
                stopped = 128 + signal.SIGINT
            except SystemExit as end:
                stopped = end.code if isinstance(end.code, int) else NOTHING
            document = run.document
            if document is None:
                print("wmlce validate: stopped before anything was found", file=sys.stderr)
                return stopped
            if not stopped:
                self._compare(document, before)
            if self.output is not None:
                report.write(document, before, self.output)
        self._tell(document, stopped)
        if stopped:
            return stopped
        self._record(document, before)
        completed = [result for result in document.results if result.status is not Status.SKIPPED]
        if not completed:
            print("wmlce validate: none of these checks can be made here", file=sys.stderr)
        return document.exit_code if completed else NOTHING

    def _references(self) -> Mapping[Key, Reference]:
        """Read before anything is started: a damaged file is reported at once."""
        files = [] if self.options.baseline is None else [self.options.baseline]
        if self.options.reference is not None:
            files.append(expect.reference_file(self.options.reference))
        return {key: reference for file in files for key, reference in expect.read_reference(file).items()}

    def _history(self) -> History:
        if self.options.history is None:
            return History()
        earlier = history.load(self.options.history)
        for line in earlier.damaged:
            self.console.print(f"ignored: {line}", style="yellow", markup=False, soft_wrap=True)
        return earlier

    def _earlier(self) -> Document | None:
        if not self.options.resume or self.output is None:
            return None
        file = self.output / report.RESULT
        return read(file) if file.exists() else None

    @contextlib.contextmanager
    def _folder(self) -> Iterator[Path]:
        """For logs: of --output, else one that goes with the run."""
        if self.output is not None:
            folder = self.output / "logs"
            folder.mkdir(parents=True, exist_ok=True)
            with _alone_in(folder):
                yield folder
            return
        with tempfile.TemporaryDirectory(prefix="wmlce-validate.") as scratch:
            yield Path(scratch)

    def _keep(self, document: Document) -> None:
        if self.output is not None:
            write_atomic(self.output / report.RESULT, json.dumps(document.as_json(), indent=1) + "\n")

    def _compare(self, document: Document, before: History) -> None:
        worse = history.compare(document, before, tolerance=self.plan.tolerance)
        expect.judge_regressions(document.results, worse)
        for result in document.results:
            expect.leave_out(result, self.plan.skip_figures)
        expect.leave_out_effects(document.results)

    def _record(self, document: Document, before: History) -> None:
        """From now on this run is one of those before."""
        if self.options.history is None:
            return
        history.record(document, self.options.history)
        if self.options.save_baseline is not None:
            good = history.good_on_like_hosts(document, before)
            if document.verdict == "passed":
                good = [*good, document]
            text = json.dumps(history.baseline(good), indent=1) + "\n"
            write_atomic(self.options.save_baseline.absolute(), text)

    def _say(self, text: str) -> None:
        self.console.print(f"            {text}", style="dim", markup=False, soft_wrap=True)

    def _show(self, result: CheckResult) -> None:
        reason = f": {result.reason.splitlines()[0]}" if result.reason and not result.findings else ""
        self.console.print(f"{result.status:8}", style=_STYLES[result.status], end="")
        text = f"  {result.name}: {result.title} ({result.seconds:.1f} s){reason}"
        self.console.print(text, markup=False, soft_wrap=True)
        for finding in result.findings:
            text = f"            {finding.severity}, {finding.kind}: {finding.text}"
            self.console.print(text, style=_COLOURS[finding.severity], markup=False, soft_wrap=True)
            self.console.print(f"            {finding.remedy}", markup=False, soft_wrap=True)

    def _tell(self, document: Document, stopped: int) -> None:
        if stopped:
            advice = f"; go on with --resume --output {self.output}" if self.output is not None else ""
            print(f"wmlce validate: stopped; not all checks were made{advice}", file=sys.stderr)
        if self.options.json:
            print(dump(document.as_json()))
        elif self.options.drain_reason:
            for host, reason in drain_reasons(document):
                print(f"{host}\t{reason}")
        else:
            self._conclude(document)

    def _conclude(self, document: Document) -> None:
        hosts = f"{len(document.hosts)} host{'s' if len(document.hosts) != 1 else ''}"
        findings = document.faults
        if findings:
            where = ", ".join(dict.fromkeys(finding.where for finding in findings))
            text, style = (
                f"{hosts}: {len(findings)} finding{'s' if len(findings) != 1 else ''}: {where}",
                "red",
            )
        else:
            text, style = f"{hosts}: nothing was found", "green"
        warnings = len(document.findings) - len(findings)
        if warnings:
            text += f"; {warnings} warning{'s' if warnings != 1 else ''}"
        self.console.print(text, style=style, markup=False, soft_wrap=True)
        if entries := document.not_judged:
            listed = ", ".join(dict.fromkeys(entry["check"] for entry in entries))
            text = f"not judged, or not all of it: {listed}; --output and --json say what and why"
            self.console.print(text, style="dim", markup=False, soft_wrap=True)
        if self.output is not None:
            self.console.print(f"report: {self.output / report.PAGE}", markup=False, soft_wrap=True)


def drain_reasons(document: Document) -> list[tuple[str, str]]:
    """For each host to drain the most severe finding about it, on a line."""
    reasons: dict[str, str] = {}
    severity = list(Kind)
    for finding in sorted(document.findings, key=lambda candidate: severity.index(candidate.kind)):
        for host in finding.hosts:
            text = " ".join(f"wmlce: {finding.kind}: {finding.text}".split())
            if len(text) > _LONGEST_REASON:
                text = text[: _LONGEST_REASON - 1] + "…"
            reasons.setdefault(host, text)
    return list(reasons.items())
