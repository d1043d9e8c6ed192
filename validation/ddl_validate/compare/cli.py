"""The command line: which ways, where, how often; and the table."""

from __future__ import annotations

import argparse
import datetime
import sys
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ..allreduce.errors import BenchError
from ..allreduce.place import Place, place
from ..allreduce.scenarios import HOST_RATE, UPLINK_RATE, of_hosts
from ..cluster import ClusterError
from ..common.console import output_console
from ..common.environment import add_environment, missing_modules, require_ddlrun, versions
from ..common.files import identity, write_atomic
from ..common.machine import facts
from ..common.running import RunFailed
from ..common.signals import end_on_sigterm
from .measure import measure
from .page import render
from .results import Results, Row
from .start import command
from .ways import ALL, NAMES, Way, Work, named


def options_of(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m ddl_validate.compare",
        description="Train LeNet on the handwritten digits by every way of using many machines: DDL, "
        "Horovod, PyTorch's DDP, parameter servers, TensorFlow's collectives and strategies. Prints images a "
        "second, the bytes on the slowest link, and the time to an accuracy, side by side, and draws them.",
        epilog="Every way runs once a round, in turns; figures are medians of the rounds. What an earlier "
        "call wrote to --output for the same work counts; --fresh measures it again. A way that fails is "
        "reported, and the others go on; the exit code is then 1.",
    )
    add_environment(parser)
    parser.add_argument(
        "--packages",
        type=Path,
        help="folder of packages beside those of --env, as pip install --target makes it",
    )
    parser.add_argument(
        "--way", action="append", choices=NAMES, metavar="NAME", help=f"may be repeated: {', '.join(NAMES)}"
    )
    parser.add_argument("--rounds", type=int, default=3, help="runs of each way (default 3)")
    parser.add_argument("--workers", type=int, default=2, help="workers of this machine (default 2)")
    parser.add_argument("--hosts", help="emulate hosts instead: workers of each, such as 1,1,1,1; needs root")
    parser.add_argument("--racks", type=int, default=2, help="of the emulated hosts (default 2)")
    parser.add_argument("--rate", default=HOST_RATE, help=f"of a host's link ({HOST_RATE})")
    parser.add_argument("--uplink-rate", default=UPLINK_RATE, help=f"of a rack's uplink ({UPLINK_RATE})")
    parser.add_argument("--epochs", type=int, default=20, help="passes over the training images (default 20)")
    parser.add_argument(
        "--batch-size", type=int, default=32, help="images of each worker and step (default 32)"
    )
    parser.add_argument(
        "--learning-rate", type=float, default=0.05, help="of an update by all workers (default 0.05)"
    )
    parser.add_argument("--accuracy", type=float, default=0.95, help="to time (default 0.95)")
    parser.add_argument("--timeout", type=float, default=600, help="limit of one run in seconds (600)")
    parser.add_argument("--fresh", action="store_true", help="measure again what was measured before")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("build/report/compare.json"),
        help="JSON; the page is beside it, as .html",
    )
    options = parser.parse_args(arguments)
    for name in ("rounds", "workers", "racks", "epochs", "batch_size"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')}: at least 1")
    if not 0 < options.accuracy <= 1:
        parser.error(f"--accuracy {options.accuracy:g}: a share of the digits, such as 0.95")
    if options.output.suffix != ".json":
        parser.error(f"--output {options.output}: write a name that ends with .json")
    if options.packages and not options.packages.is_dir():
        parser.error(f"--packages {options.packages}: no such folder")
    require_ddlrun(parser, options.env)
    try:
        options.scenario = of_hosts(options.hosts, options.racks, options.rate, options.uplink_rate)
    except ValueError:
        parser.error(f"--hosts {options.hosts}: write the workers of each host, such as 1,1,1,1")
    except BenchError as error:
        parser.error(str(error))
    return options


def ways_of(options: argparse.Namespace) -> tuple[list[Way], list[str]]:
    """The ways that were requested and can run in the environment, and a line for each that cannot."""
    ways, left_out = [], []
    for way in (named(name) for name in options.way) if options.way else ALL:
        if lacking := missing_modules(way.packages, options.env, options.packages):
            left_out.append(f"{way.title}: {options.env} has no {', '.join(lacking)}")
        else:
            ways.append(way)
    return ways, left_out


def table_of(results: Results) -> Table:
    table = Table(title=f"LeNet, digits: {results.head['place']}", title_justify="left")
    table.add_column("")
    link = "bytes an image,\nslowest link"
    for heading in ("images/s", f"seconds to\n{results.accuracy:g}", "best\naccuracy", link):
        table.add_column(heading, justify="right")

    def text(value: float | None, digits: int, otherwise: str = "-") -> str:
        return otherwise if value is None else f"{value:.{digits}f}"

    for row in results.rows:
        table.add_row(
            row.title,
            "failed" if row.error else text(row.speed, 0),
            text(row.seconds_to(results.accuracy), 1, "not reached" if row.speeds else "-"),
            text(row.best, 3),
            text(row.bytes_per_image(results.racks), 0),
        )
    return table


def _run(where: Place, way: Way, row: Row, work: Work, options: argparse.Namespace, number: int) -> str:
    """Run a way once, and say in a line what came of it."""
    row.command = command(where, options.env.resolve(), options.packages, way, way.program(work))
    log = options.output.parent / "logs" / f"compare-{way.name}-{number + 1}.log"
    try:
        measured = measure(row.command, way.title, log, options.timeout, where.counters)
    except RunFailed as error:
        row.error = error.line
        return f"failed: {error.line}"
    row.add(measured)
    reached = measured.seconds_to(options.accuracy)
    return f"{measured.speed:.0f} images/s, {options.accuracy:g} " + (
        f"after {reached:.1f} s" if reached is not None else "not reached"
    )


def run_all(options: argparse.Namespace, where: Place, console: Console) -> Results:
    ways, left_out = ways_of(options)
    for line in left_out:
        console.print(f"left out: {line}", markup=False, soft_wrap=True)
    work = Work(where.ranks, options.batch_size, options.epochs, options.learning_rate)
    packages = sorted(versions(options.env.resolve()).items())
    head = {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "host": facts(),
        "place": where.text,
        "racks": where.racks,
        "work": asdict(work),
        "accuracy": options.accuracy,
        "left_out": left_out,
        "identity": identity(where.text, asdict(work), packages),
    }
    results = Results(options.output, head, options.fresh)
    for number in range(options.rounds):
        for way in ways:
            row = results.row(way)
            if len(row.speeds) > number or (row.error and number):
                continue
            outcome = _run(where, way, row, work, options, number)
            results.write()
            console.print(
                f"  round {number + 1} of {options.rounds}: {way.title}: {outcome}",
                markup=False,
                soft_wrap=True,
            )
    return results


def main(arguments: list[str] | None = None) -> int:
    options = options_of(arguments)
    end_on_sigterm()
    console = output_console()
    root = Path(__file__).resolve().parents[3]
    try:
        shared = [root, options.env, *([options.packages] if options.packages else [])]
        with place(options.scenario, options.workers, shared) as where:
            results = run_all(options, where, console)
    except (BenchError, ClusterError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    console.print(table_of(results))
    page = options.output.with_suffix(".html")
    results.write()
    write_atomic(page, render(results))
    console.print(f"written: {options.output}, {page}", markup=False, soft_wrap=True)
    failed = [row.title for row in results.rows if row.error]
    if failed:
        print(f"error: gave no result: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0
