"""`python -m ddl_validate.training_speed`: who trains how fast, side by side."""

from __future__ import annotations

import argparse
import datetime
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ..allreduce.errors import BenchError
from ..allreduce.place import Place, place
from ..allreduce.scenarios import HOST_RATE, UPLINK_RATE, of_hosts
from ..cluster import ClusterError
from ..common.console import output_console
from ..common.environment import add_environment, require_ddlrun, versions
from ..common.files import identity
from ..common.machine import facts
from ..common.models import DEVICES, cpu_batch, data_of
from ..common.running import RunFailed
from ..common.signals import end_on_sigterm
from ..common.store import ResultStore
from .configurations import ALL, NAMES, Configuration, named
from .measure import SCHEMA, Figures, Row, Work, figures, measure

# Timed steps: a run lasts a minute or so on one core.
STEPS_HERE = {"resnet20": 200, "alexnet": 20, "resnet50": 20, "vgg16": 10}
# Images a rank and step, and timed steps. On slow links a step lasts as long as the exchange: few of both.
ON_HOSTS = {"alexnet": (4, 4), "vgg16": (1, 3)}
OTHER_STEPS = 10
ON_ONE_HOST = ("independent", "ddl", "horovod", "horovod-mpi", "horovodrun-mpi")
ON_SEVERAL = tuple(configuration.name for configuration in ALL if not configuration.by_horovodrun)
# Pairs of blocks of steps with and without exchange. On slow links they would tell what the rounds tell.
BLOCKS_HERE = 24
# The columns of the table.
FIGURES = (
    "images/s",
    "lowest-highest",
    "parallel\nefficiency",
    "communication\nefficiency",
    "DDL is ahead",
    "exchange",
    "overlap",
)


def options_of(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m ddl_validate.training_speed",
        description="Train the same networks with DDL, Horovod with and without DDL, PyTorch's DDP with DDL "
        "and Gloo, and without any communication; print the speeds side by side.",
        epilog="Every configuration runs once a round, in turns; speeds and ratios are medians of the "
        "rounds. What an earlier call wrote to --output for the same work counts; --fresh measures it again.",
    )
    add_environment(parser)
    parser.add_argument(
        "--env-mpi", type=Path, help="environment with horovod-mpi (default: horovod-mpi beside --env)"
    )
    parser.add_argument(
        "--model", action="append", help="may be repeated (default: resnet20 alexnet resnet50)"
    )
    parser.add_argument("--configuration", action="append", choices=NAMES, help="may be repeated")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each configuration (default 3)")
    parser.add_argument("--ranks", type=int, default=2, help="ranks of this machine (default 2)")
    parser.add_argument("--hosts", help="emulate hosts instead: ranks of each, such as 2,2,2,2; needs root")
    parser.add_argument("--racks", type=int, default=2, help="of the emulated hosts (default 2)")
    parser.add_argument("--rate", default=HOST_RATE, help=f"of a host's link ({HOST_RATE})")
    parser.add_argument("--uplink-rate", default=UPLINK_RATE, help=f"of a rack's uplink ({UPLINK_RATE})")
    parser.add_argument("--device", choices=DEVICES, default="cpu", help="what computes (default cpu)")
    parser.add_argument("--batch-size", type=int, help="images a rank and step")
    parser.add_argument("--num-batches", type=int, help="timed steps")
    parser.add_argument(
        "--num-warmup-batches", type=int, help="steps before (default 10; 2 on emulated hosts)"
    )
    parser.add_argument(
        "--exchange-blocks",
        type=int,
        help="pairs of blocks of steps with and without exchange in turns, after the timed steps "
        f"(default {BLOCKS_HERE}; 0 on emulated hosts)",
    )
    parser.add_argument("--timeout", type=float, default=1200, help="limit of one run in seconds (1200)")
    parser.add_argument("--fresh", action="store_true", help="measure again what was measured before")
    parser.add_argument("--output", type=Path, default=Path("build/report/training-speed.json"))
    options = parser.parse_args(arguments)
    least = {
        "rounds": 1,
        "ranks": 1,
        "batch_size": 1,
        "num_batches": 1,
        "num_warmup_batches": 0,
        "exchange_blocks": 0,
    }
    for name, value in least.items():
        if (number := getattr(options, name)) is not None and number < value:
            parser.error(f"--{name.replace('_', '-')}: at least {value}")
    require_ddlrun(parser, options.env)
    options.env_mpi = options.env_mpi or options.env.resolve().parent / "horovod-mpi"
    try:
        options.scenario = of_hosts(options.hosts, options.racks, options.rate, options.uplink_rate)
    except ValueError:
        parser.error(f"--hosts {options.hosts}: write the ranks of each host, such as 2,2,2,2")
    except BenchError as error:
        parser.error(str(error))
    defaults = ON_HOSTS if options.hosts else STEPS_HERE
    options.model = options.model or [name for name in defaults if name != "vgg16"]
    return options


def configurations_of(options: argparse.Namespace, model: str) -> tuple[list[Configuration], list[str]]:
    """The requested configurations that can train the model here, and a line for each that cannot."""
    requested = options.configuration or (ON_SEVERAL if options.hosts else ON_ONE_HOST)
    configurations, left_out = [], []
    for configuration in (named(name) for name in requested):
        if not configuration.trains(model):
            left_out.append(f"{configuration.title} does not train {model} here")
        elif configuration.by_horovodrun and options.hosts:
            left_out.append(f"{configuration.title}: on this machine only")
        elif configuration.without_ddl and not (options.env_mpi / "bin/ddlrun").exists():
            left_out.append(
                f"{configuration.title}: no environment {options.env_mpi}; create it: "
                "wmlce env create horovod-mpi horovod-mpi ddl tf-cnn-benchmarks"
            )
        else:
            configurations.append(configuration)
    return configurations, left_out


def work_of(options: argparse.Namespace, model: str) -> Work:
    batch, steps = cpu_batch(model), STEPS_HERE.get(model, OTHER_STEPS)
    if options.hosts:
        batch, steps = ON_HOSTS.get(model, (4, OTHER_STEPS))
    warmup, blocks = options.num_warmup_batches, options.exchange_blocks
    return Work(
        model,
        data_of(model),
        options.batch_size or batch,
        options.num_batches or steps,
        (2 if options.hosts else 10) if warmup is None else warmup,
        (0 if options.hosts else BLOCKS_HERE) if blocks is None else blocks,
        options.device,
    )


class Results(ResultStore[Row]):
    """The rows measured so far."""

    def row_documents(self) -> list[dict[str, Any]]:
        return [{**row.as_json(), "title": named(row.row.configuration).title} for row in figures(self.rows)]


def table_of(model: str, figures: list[Figures], place_text: str) -> Table:
    batch = figures[0].row.batch
    table = Table(title=f"{model}, batch {batch} a rank: {place_text}", title_justify="left")
    table.add_column("")
    for heading in FIGURES:
        table.add_column(heading, justify="right")
    for figure in figures:
        speeds = figure.row.speeds
        table.add_row(
            named(figure.row.configuration).title,
            f"{figure.row.median:.2f}",
            f"{min(speeds):.2f}-{max(speeds):.2f}",
            "" if figure.parallel_efficiency is None else f"{figure.parallel_efficiency:.2f}",
            "" if figure.communication_efficiency is None else f"{figure.communication_efficiency:.3f}",
            "" if figure.ddl_ahead is None else f"{figure.ddl_ahead:.2f}x",
            "" if figure.exchange is None else f"{figure.exchange:.3f} s",
            "" if figure.overlap is None else f"{figure.overlap:.3f} s",
        )
    return table


def run_all(options: argparse.Namespace, where: Place, console: Console) -> Results:
    works = {model: work_of(options, model) for model in options.model}
    prefixes = [options.env.resolve(), options.env_mpi.resolve()]
    ranks = f"{where.text}, a core each"
    head = {
        "kind": "training-speed",
        "schema": SCHEMA,
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "host": facts(),
        "place": ranks,
        "works": [asdict(work) for work in works.values()],
        "identity": identity(
            ranks,
            [asdict(work) for work in works.values()],
            [sorted(versions(prefix).items()) for prefix in prefixes],
        ),
    }
    results = Results(options.output, head, Row, options.fresh)
    logs = options.output.parent / "logs"
    for model, work in works.items():
        configurations, left_out = configurations_of(options, model)
        for line in left_out:
            console.print(f"note: {line}", markup=False, soft_wrap=True)
        for number in range(options.rounds):
            for configuration in configurations:
                row = results.find(
                    Row(configuration.name, model, work.batch, where.ranks), "configuration", "model"
                )
                if len(row.speeds) > number:
                    continue
                log = logs / f"speed-{model}-{configuration.name}-{number + 1}.log"
                prefix = prefixes[1] if configuration.without_ddl else prefixes[0]
                measured = measure(where, prefix, configuration, work, log, options.timeout)
                row.speeds.append(measured.speed)
                row.command = measured.command
                if measured.alone is not None:
                    row.alone.append(measured.alone)
                if measured.communication_efficiency is not None:
                    row.shares.append(measured.communication_efficiency)
                results.write()
                console.print(
                    f"  {model}, round {number + 1} of {options.rounds}: {configuration.title} "
                    f"{measured.speed:.2f} images/s",
                    markup=False,
                    soft_wrap=True,
                )
        console.print(table_of(model, [o for o in figures(results.rows) if o.row.model == model], ranks))
    return results


def main(arguments: list[str] | None = None) -> int:
    options = options_of(arguments)
    end_on_sigterm()
    console = output_console()
    root = Path(__file__).resolve().parents[3]
    try:
        with place(options.scenario, options.ranks, [root, options.env, options.env_mpi]) as where:
            run_all(options, where, console)
    except (RunFailed, BenchError, ClusterError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    console.print(f"written: {options.output}", markup=False, soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
