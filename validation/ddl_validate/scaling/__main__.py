"""`python -m ddl_validate.scaling`: the scaling table of tf_cnn_benchmarks."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ..common.benchmark import program_words
from ..common.console import output_console
from ..common.environment import add_environment, require_ddlrun
from ..common.files import write_atomic
from ..common.machine import facts
from ..common.models import DEVICES, cpu_batch, data_of
from ..common.running import RunFailed
from ..common.signals import end_on_sigterm
from .run import Run, run

#: Values of --variable_update by which the ranks of one ddlrun train together; by others each trains alone.
TOGETHER = ("ddl", "horovod")


def describe_plan(plan: dict[str, Any]) -> str:
    """What DDL chose, in one cell: the algorithm of the last gradient exchange and what carried it."""
    if not plan:
        return "-"
    if plan.get("size") == 1:
        return "one rank: no communication"
    algorithm = (plan.get("last") or {}).get("algorithm") or "nothing was exchanged"
    algorithm = algorithm.partition(";")[0]
    hosts = len((plan.get("topology") or {}).get("hosts", []))
    carried = " and ".join(plan.get("transports", []))
    return f"{algorithm}; {hosts} host(s), {carried}" if carried else str(algorithm)


def efficiency(runs: list[Run], run: Run) -> float:
    """Images per second of a run over ranks times the smallest run's speed per rank."""
    base = runs[0]
    return run.images_per_sec / (run.ranks * base.images_per_sec / base.ranks)


def options_of(arguments: list[str] | None) -> argparse.Namespace:
    """The options of a command line, with those that follow from others filled in."""
    parser = argparse.ArgumentParser(
        prog="python -m ddl_validate.scaling",
        description="Train with tf_cnn_benchmarks at several numbers of ranks; print how the speed scales.",
        epilog="A rank is given the same number of cores in every run: efficiency compares like with like.",
    )
    add_environment(parser)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2], help="numbers of ranks (default 1 2)")
    parser.add_argument("--model", default="resnet20", help="model (default resnet20)")
    parser.add_argument("--data-name", help="cifar10 or imagenet (default: what the model is made for)")
    parser.add_argument(
        "--batch-size", type=int, help="images a rank and step (default: what one core trains)"
    )
    parser.add_argument("--device", choices=DEVICES, default="cpu", help="what computes (default cpu)")
    parser.add_argument("--num-batches", type=int, default=40, help="timed steps (default 40)")
    parser.add_argument("--variable-update", default="ddl", help="ddl, horovod, … (default ddl)")
    parser.add_argument("--cores-per-rank", type=int, help="default: cores / largest number of ranks")
    parser.add_argument("--ddlrun-option", action="append", default=[], help="one more word for ddlrun")
    parser.add_argument("--timeout", type=float, default=1200, help="limit of one run in seconds (1200)")
    parser.add_argument("--output", type=Path, help="write the results to this JSON file")
    options = parser.parse_args(arguments)
    if min(options.ranks) < 1:
        parser.error("--ranks: at least 1")
    require_ddlrun(parser, options.env)
    options.ranks = sorted(set(options.ranks))
    options.cores_per_rank = options.cores_per_rank or max(1, _cores() // options.ranks[-1])
    options.data_name = options.data_name or data_of(options.model)
    options.batch_size = options.batch_size or cpu_batch(options.model)
    return options


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _shares_cores(options: argparse.Namespace) -> bool:
    """Whether the largest run has fewer cores than its ranks want."""
    return bool(options.cores_per_rank * options.ranks[-1] > _cores())


def run_all(options: argparse.Namespace, console: Console) -> list[Run]:
    """One run for each number of ranks. RunFailed where one fails."""
    # The number of threads alone does not keep a rank to its cores: TensorFlow computes on the threads of its
    # input pipeline too.
    bound = not _shares_cores(options) and not options.ddlrun_option
    binding = ["-cores", str(options.cores_per_rank)] if bound else []
    program = [
        *program_words(
            options.model,
            options.data_name,
            options.batch_size,
            options.num_batches,
            10,
            options.device,
            options.variable_update,
        ),
        "--display_every=10",
        f"--num_intra_threads={options.cores_per_rank}",
    ]
    logs = (options.output.parent if options.output else Path.cwd()) / "logs"
    runs: list[Run] = []
    for count in options.ranks:

        def progress(line: str, seconds: float, count: int = count) -> None:
            if "images/sec" in line or line.startswith(("Running warm up", "+ mpirun")):
                console.print(
                    f"  [{count} rank(s), {seconds:5.1f} s] {line.expandtabs(2)}",
                    markup=False,
                    soft_wrap=True,
                )

        runs.append(
            run(
                options.env.resolve(),
                count,
                program,
                logs / f"{options.model}-{options.variable_update}-{count}.log",
                ddlrun_options=binding + options.ddlrun_option,
                processes=1 if options.variable_update in TOGETHER else count,
                timeout=options.timeout,
                progress=progress,
            )
        )
    return runs


def table_of(runs: list[Run], options: argparse.Namespace) -> Table:
    table = Table(
        title=f"{options.model} ({options.data_name}, synthetic), batch {options.batch_size} and "
        f"{options.cores_per_rank} core(s) a rank"
    )
    for heading in ("ranks", "images/s", "efficiency", f"{options.variable_update} chose"):
        table.add_column(heading, justify="left" if "chose" in heading else "right")
    for entry in runs:
        table.add_row(
            str(entry.ranks),
            f"{entry.images_per_sec:.2f}",
            f"{efficiency(runs, entry):.2f}",
            describe_plan(entry.plan),
        )
    return table


def document_of(runs: list[Run], options: argparse.Namespace) -> dict[str, Any]:
    return {
        "kind": "scaling",
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "host": facts(),
        "model": options.model,
        "data": f"{options.data_name} (synthetic)",
        "batch_per_rank": options.batch_size,
        "cores_per_rank": options.cores_per_rank,
        "device": options.device,
        "variable_update": options.variable_update,
        "runs": [
            {**entry.as_json(), "efficiency": efficiency(runs, entry), "chose": describe_plan(entry.plan)}
            for entry in runs
        ],
    }


def main(arguments: list[str] | None = None) -> int:
    options = options_of(arguments)
    end_on_sigterm()
    console = output_console()
    try:
        runs = run_all(options, console)
    except RunFailed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    console.print(table_of(runs, options))
    if len(runs) > 1 and _shares_cores(options):
        ranks = f"{options.ranks[-1]} ranks x {options.cores_per_rank} core(s)"
        console.print(f"note: {ranks} on {_cores()} core(s): the ranks share cores.")
    if options.output:
        write_atomic(options.output, json.dumps(document_of(runs, options), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
