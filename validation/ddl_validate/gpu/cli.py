"""The command ``ddl-gpu-check``."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from ..allreduce.results import dump
from ..common.console import output_console
from ..common.files import write_atomic
from ..common.signals import end_on_sigterm
from . import document
from .checks import (
    CHECKS,
    FAILED,
    LEAST_HIDDEN_SHARE,
    LEAST_STAGED_SHARE,
    NOT_RUN,
    PASSED,
    QUICK,
    Bench,
    Effort,
    Result,
    run_all,
)
from .facts import of_prefix
from .page import page
from .start import Starter

_EXIT = {PASSED: 0, FAILED: 1, NOT_RUN: 3}
_STYLES = {PASSED: "green", FAILED: "red", NOT_RUN: "yellow"}
_LONGEST_REASON = 300

EPILOG = f"""\
checks, in this order:
{chr(10).join(f"  {name:12}{title}" for name, (title, _) in CHECKS.items())}

verdicts:
  passed    what was computed is right, and what was measured reaches its threshold
  failed    a wrong result, a failing driver, a time limit, or a figure below its threshold
  not run   the check cannot be made here, and the line says why: one GPU, no NCCL, a framework without GPUs

exit codes:
  0  nothing failed, and at least the driver and its GPUs were there
  1  a check failed
  2  the command line cannot be read
  3  no GPU: nothing was run

examples:
  ddl-gpu-check                                    all checks; minutes
  ddl-gpu-check --quick                            small sizes; the figures then say little
  ddl-gpu-check --json gpu.json --html gpu.html    to keep; no host names, no serial numbers
  ddl-gpu-check --only driver,values               is DDL right on this GPU?
  CUDA_VISIBLE_DEVICES=1 ddl-gpu-check             one certain GPU
  singularity exec --nv ddl-gpu.sif ddl-gpu-check  in the image

docs/cluster/gpu-check.md tells what each check does and how to read the figures.
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ddl-gpu-check",
        description="Check DDL on the GPUs of this host: right results, the order of streams, bandwidth "
        "against what copies reach, overlap with other work, and training. It starts its ranks itself.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="small buffers and few repetitions")
    add("--only", metavar="CHECK,…", default="", help="these checks; the driver is always looked at")
    add("--ranks", metavar="N,…", default="2,3", help="numbers of ranks that share one GPU (%(default)s)")
    add(
        "--least-staged-share",
        metavar="SHARE",
        type=float,
        default=LEAST_STAGED_SHARE,
        help="of what the link to the GPU carries both ways at once, for an all-reduce by way of the host "
        "(%(default)s)",
    )
    add(
        "--least-hidden-share",
        metavar="SHARE",
        type=float,
        default=LEAST_HIDDEN_SHARE,
        help="of a call or the work beside it, whichever is shorter, hidden behind the other (%(default)s)",
    )
    add("--limit", metavar="SECONDS", type=float, default=600.0, help="for each check (%(default)g)")
    add("--json", metavar="FILE", type=Path, help="write the result as JSON")
    add("--html", metavar="FILE", type=Path, help="write the result as a page")
    add(
        "--with-host-name",
        action="store_true",
        help="keep the host's name, its environment and places on the bus in both",
    )
    add("--logs", metavar="DIR", type=Path, help="keep the ranks' output there")
    add("--prefix", metavar="DIR", type=Path, default=Path(sys.prefix), help="environment (this one)")
    return parser


def _names(parser: argparse.ArgumentParser, text: str) -> list[str]:
    names = [name for name in text.split(",") if name]
    unknown = [name for name in names if name not in CHECKS]
    if unknown:
        parser.error(f"--only {unknown[0]!r}: one of: {', '.join(CHECKS)}")
    return [name for name in CHECKS if not names or name in names]


def _ranks(parser: argparse.ArgumentParser, text: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(word) for word in text.split(","))
    except ValueError:
        parser.error(f"--ranks {text!r}: numbers with commas, such as 2,3")
    if not all(2 <= number <= 64 for number in numbers):
        parser.error(f"--ranks {text!r}: 2 to 64")
    return numbers


def _show(result: Result, console: Console) -> None:
    reason = result.reason.strip()
    text = reason if len(reason) <= _LONGEST_REASON else reason[:_LONGEST_REASON] + " …"
    console.print(f"{result.verdict:8}", style=_STYLES[result.verdict], end="")
    console.print(f"  {result.title}" + (f": {text}" if text else ""), markup=False, soft_wrap=True)


def main(arguments: list[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    names, ranks = _names(parser, options.only), _ranks(parser, options.ranks)
    if options.limit <= 0:
        parser.error(f"--limit {options.limit:g}: more than 0 seconds")
    end_on_sigterm()
    console = output_console()
    prefix = options.prefix.absolute()
    effort = QUICK if options.quick else Effort()
    shares = (options.least_staged_share, options.least_hidden_share)
    facts = of_prefix(prefix)
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="ddl-gpu-check.") as scratch:
        folder = options.logs.absolute() if options.logs else Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        bench = Bench(Starter(prefix, folder, options.limit), facts, effort, ranks, *shares)
        try:
            for result in run_all(bench, names):
                results.append(result)
                _show(result, console)
        except KeyboardInterrupt:
            print("ddl-gpu-check: stopped", file=sys.stderr)
            return 130
    results_document = document.make(facts, results, options.quick, options.with_host_name)
    if options.json:
        write_atomic(options.json, dump(results_document) + "\n")
    if options.html:
        write_atomic(options.html, page(results_document))
    verdict = document.verdict(results)
    counts = {kind: sum(result.verdict == kind for result in results) for kind in _EXIT}
    console.print(", ".join(f"{count} {kind}" for kind, count in counts.items() if count), markup=False)
    return _EXIT[verdict]
