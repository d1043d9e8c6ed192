"""The command line: which works, by which methods, where, how often; and the tables."""

from __future__ import annotations

import argparse
import datetime
import os
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
from ..common.files import identity
from ..common.machine import facts
from ..common.measured import ROOT
from ..common.models import DEVICES
from ..common.running import RunFailed
from ..common.signals import end_on_sigterm
from .document import Document, Row
from .figures import cells_of, write
from .methods import METHODS, ON_THIS_MACHINE, Method, programs_hash
from .run import measure
from .works import BLOCKS, TIMEOUTS, Work, amount_of

#: Options that are numbers: the least, the default, and what they are.
_NUMBERS: dict[str, tuple[int, int | None, str]] = {
    "--rounds": (1, None, "runs of each method (default 3; 1 of examples)"),
    "--racks": (1, 2, "of the emulated hosts (default 2)"),
    "--cores": (1, None, "of each rank (default: cores / largest number of ranks)"),
    "--batch-size": (1, None, "images a rank and step"),
    "--epochs": (1, 20, "passes over the digits (default 20)"),
    "--num-batches": (1, None, "timed steps of a model"),
    "--num-warmup-batches": (0, None, "steps before them (default 10; 2 on emulated hosts)"),
    "--exchange-blocks": (
        *(0, None),
        "pairs of blocks of steps with and without exchange in turns, after the timed steps "
        f"(default {BLOCKS}; 0 on emulated hosts)",
    ),
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m ddl_validate.trainings",
        description="Train the same by many methods, side by side: DDL, Horovod, PyTorch's DDP, parameter "
        "servers, TensorFlow's strategies. WORK is a model of tf_cnn_benchmarks, on synthetic images, whose "
        "speed is compared; `digits`, LeNet on handwritten digits, with the time to an accuracy and the "
        "bytes on the slowest link; or `examples`, those of each framework.",
        epilog="Every method runs once a round, in turns; figures are medians of the rounds. What an earlier "
        "call wrote to --output for the same work counts; --fresh measures it again. A method that fails is "
        "reported, and the others go on; the exit code is then 1.",
    )
    add = parser.add_argument
    add("work", metavar="WORK", nargs="+", help="resnet20, alexnet, …; digits; examples")
    names = f"may be repeated: {', '.join(METHODS)}"
    add("--method", action="append", choices=tuple(METHODS), metavar="NAME", help=names)
    add_environment(parser)
    add("--env-mpi", type=Path, help="environment with horovod-mpi (default: horovod-mpi beside --env)")
    add("--packages", type=Path, help="folder of packages beside --env, as pip install --target makes it")
    add("--ranks", type=int, nargs="+", default=[2], help="numbers of ranks of this machine (default 2)")
    add("--hosts", help="emulate hosts instead: ranks of each, such as 2,2,2,2; needs root")
    add("--rate", default=HOST_RATE, help=f"of an emulated host's link ({HOST_RATE})")
    add("--uplink-rate", default=UPLINK_RATE, help=f"of an emulated rack's uplink ({UPLINK_RATE})")
    for name, (_, default, text) in _NUMBERS.items():
        add(name, type=int, default=default, help=text)
    add("--device", choices=DEVICES, default="cpu", help="what computes (default cpu)")
    add("--learning-rate", type=float, default=0.05, help="of an update by all ranks (default 0.05)")
    add("--accuracy", type=float, default=0.95, help="to time (default 0.95)")
    add("--timeout", type=float, help="limit of one run in seconds (default 300 to 1200)")
    add("--fresh", action="store_true", help="measure again what was measured before")
    add("--output", type=Path, help="default: build/report/WORK.json")
    return parser


def options_of(arguments: list[str] | None) -> argparse.Namespace:
    """The options of a command line, with those that follow from others filled in."""
    parser = _parser()
    options = parser.parse_args(arguments)
    for name, (least, _, _) in _NUMBERS.items():
        value = getattr(options, name[2:].replace("-", "_"))
        if value is not None and value < least:
            parser.error(f"{name}: at least {least}")
    if min(options.ranks) < 1:
        parser.error("--ranks: at least 1")
    if not 0 < options.accuracy <= 1:
        parser.error(f"--accuracy {options.accuracy:g}: a share of the digits, such as 0.95")
    if options.packages and not options.packages.is_dir():
        parser.error(f"--packages {options.packages}: no such folder")
    require_ddlrun(parser, options.env)
    options.env_mpi = options.env_mpi or options.env.resolve().parent / "horovod-mpi"
    options.output = options.output or Path("build/report") / f"{'-'.join(options.work)}.json"
    try:
        options.scenario = of_hosts(options.hosts, options.racks, options.rate, options.uplink_rate)
    except ValueError:
        parser.error(f"--hosts {options.hosts}: write the ranks of each host, such as 2,2,2,2")
    except BenchError as error:
        parser.error(str(error))
    return options


def work_of(name: str, options: argparse.Namespace, ranks: int) -> Work:
    """What to train at up to so many ranks, and as much of it as one can wait for."""
    cores = options.cores or (1 if options.hosts else max(1, len(os.sched_getaffinity(0)) // ranks))
    if name == "examples":
        return Work("examples", name, cores=cores)
    if name == "digits":
        course = {"epochs": options.epochs, "rate": options.learning_rate}
        return Work("digits", name, options.batch_size or 32, 1, **course)
    batch, steps, warmup, blocks = amount_of(name, slow_links=bool(options.hosts))
    if options.num_warmup_batches is not None:
        warmup = options.num_warmup_batches
    if options.exchange_blocks is not None:
        blocks = options.exchange_blocks
    batch, steps = options.batch_size or batch, options.num_batches or steps
    return Work("synthetic", name, batch, cores, options.device, steps, warmup, blocks)


def methods_of(options: argparse.Namespace, work: Work) -> tuple[list[Method], list[str]]:
    """The requested methods that can train the work here, and a line for each that cannot."""
    names = options.method or [
        name
        for name, method in METHODS.items()
        if method.trains(work) and (options.hosts or work.kind != "synthetic" or name in ON_THIS_MACHINE)
    ]
    installed = versions(options.env.resolve())
    methods, left_out = [], []
    for method in (METHODS[name] for name in names):
        missing = missing_modules(method.packages, options.env, options.packages)
        if missing := [name for name in missing if name not in installed]:
            left_out.append(f"{method.title}: {options.env} has no {', '.join(missing)}")
        elif not method.trains(work):
            left_out.append(f"{method.title} does not train {work.name} here")
        elif method.by_horovodrun and options.hosts:
            left_out.append(f"{method.title}: on this machine only")
        elif method.without_ddl and not (options.env_mpi / "bin/ddlrun").exists():
            left_out.append(
                f"{method.title}: no environment {options.env_mpi}; create it: "
                "wmlce env create horovod-mpi horovod-mpi ddl tf-cnn-benchmarks"
            )
        else:
            methods.append(method)
    return methods, left_out


class _Session:
    """The measurements of one call."""

    def __init__(self, options: argparse.Namespace, where: Place, console: Console) -> None:
        self.options, self.console = options, console
        ranks = sorted(set(options.ranks))
        self.places = [where] if options.hosts else [Place(number) for number in ranks]
        self.works = [work_of(name, options, self.places[-1].ranks) for name in options.work]
        selected = [methods_of(options, work) for work in self.works]
        self.methods = [methods for methods, _ in selected]
        self.left_out = [line for _, lines in selected for line in lines]
        head = {
            "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "host": facts(),
            "place": where.text if options.hosts else f"{', '.join(map(str, ranks))} ranks of this machine",
            "racks": where.racks,
            "works": {work.name: {**asdict(work), "text": work.text} for work in self.works},
            "accuracy": options.accuracy,
            "left_out": self.left_out,
        }
        packages = [
            sorted(record.name for record in prefix.resolve().glob("conda-meta/*.json"))
            for prefix in (options.env, options.env_mpi)
        ]
        head["identity"] = identity(head["place"], head["works"], packages, programs_hash())
        self.document = Document(options.output, head, options.fresh)

    def run(self) -> None:
        """All rounds; what fails is in its row and on standard error, and the others go on."""
        for line in self.left_out:
            self._say(f"left out: {line}")
        for work, methods in zip(self.works, self.methods, strict=True):
            rounds = self.options.rounds or (1 if work.kind == "examples" else 3)
            for number in range(rounds):
                for method in methods:
                    for where in self.places:
                        row = self._row(work, method, where)
                        if len(row.samples) > number or (row.error and number):
                            continue
                        title = f"{work.name}, {where.ranks} rank(s), round {number + 1} of {rounds}"
                        self._say(f"  {title}: {method.title}: ", end="")
                        self._say(self._measure(work, method, where, row, number))
                        write(self.document)

    def _say(self, text: str, end: str = "\n") -> None:
        self.console.print(text, end=end, markup=False, soft_wrap=True, highlight=False)

    def _row(self, work: Work, method: Method, where: Place) -> Row:
        row = self.document.row(work.name, method.name, where.ranks)
        row.title = method.title
        if work.kind == "examples":
            package = method.packages[0]
            row.title += f" ({package} {versions(self.options.env.resolve()).get(package, '')})"
        row.batch, row.asynchronous = work.batch, method.asynchronous
        return row

    def _measure(self, work: Work, method: Method, where: Place, row: Row, number: int) -> str:
        """Run a training once, and say in a line what came of it."""
        options = self.options
        prefix = (options.env_mpi if method.without_ddl else options.env).resolve()
        row.command = method.command(work, where, prefix, options.packages)
        log = options.output.parent / f"logs/{work.name}-{method.name}-{where.ranks}-{number + 1}.log"
        row.log = str(log)
        try:
            limit, title = options.timeout or TIMEOUTS[work.kind], f"{method.title}, {work.name}"
            processes = where.ranks if method.independent else 1
            counts = {"ranks": where.ranks, "processes": processes}
            sample = measure(row.command, log, limit, title, work.kind, counters=where.counters, **counts)
        except RunFailed as error:
            row.error = error.line
            print(f"error: {error}", file=sys.stderr)
            return "failed"
        row.error = None
        row.samples.append(sample)
        speed = "" if sample.images_per_sec is None else f"{sample.images_per_sec:.2f} images/s, "
        best = max((value for _, value in sample.accuracies), default=None)
        return f"{speed}{'' if best is None else f'accuracy {best:.3f}, '}{sample.seconds:.1f} s"


def show(document: Document, console: Console) -> None:
    for work, rows in document.by_work():
        cells = cells_of(rows, document, without="time")
        text = f"{document.head['works'][work]['text']}: {document.head['place']}"
        table = Table(title=text, title_justify="left")
        for number, heading in enumerate(cells.headings):
            table.add_column(heading, justify="right" if number in cells.numbers else "left")
        for row in cells.rows:
            table.add_row(*row)
        console.print(table)


def main(arguments: list[str] | None = None) -> int:
    options = options_of(arguments)
    end_on_sigterm()
    console = output_console()
    shared = [ROOT, options.env, options.env_mpi, *([options.packages] if options.packages else [])]
    try:
        with place(options.scenario, max(options.ranks), shared) as where:
            session = _Session(options, where, console)
            session.run()
    except (BenchError, ClusterError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    document = session.document
    if not document.rows:
        print("error: there is nothing to train with; install powerai in the environment", file=sys.stderr)
        return 1
    write(document)
    show(document, console)
    console.print(f"written: {options.output}", markup=False, soft_wrap=True)
    failed = [row.title for row in document.rows if row.error]
    if failed:
        print(f"error: gave no result: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0
