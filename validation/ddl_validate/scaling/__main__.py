"""`python -m ddl_validate.scaling`: the scaling table of tf_cnn_benchmarks."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
from pathlib import Path
from typing import Any

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


def efficiency(runs: list[Run], one: Run) -> float:
    """Images per second of a run over ranks times the smallest run's speed per rank."""
    base = runs[0]
    return one.images_per_sec / (one.ranks * base.images_per_sec / base.ranks)


def main(arguments: list[str] | None = None) -> int:
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

    ranks = sorted(set(options.ranks))
    cores = len(os.sched_getaffinity(0))
    each = options.cores_per_rank or max(1, cores // ranks[-1])
    # The number of threads alone does not keep a rank to its cores: TensorFlow computes on the threads of its
    # input pipeline too.
    binding = [] if each * ranks[-1] > cores or options.ddlrun_option else ["-cores", str(each)]
    data = options.data_name or data_of(options.model)
    batch = options.batch_size or cpu_batch(options.model)
    program = [
        *program_words(
            options.model, data, batch, options.num_batches, 10, options.device, options.variable_update
        ),
        "--display_every=10",
        f"--num_intra_threads={each}",
    ]
    end_on_sigterm()
    console = output_console()
    logs = (options.output.parent if options.output else Path.cwd()) / "logs"
    runs: list[Run] = []
    for count in ranks:

        def progress(line: str, seconds: float, count: int = count) -> None:
            if "images/sec" in line or line.startswith(("Running warm up", "+ mpirun")):
                console.print(
                    f"  [{count} rank(s), {seconds:5.1f} s] {line.expandtabs(2)}",
                    markup=False,
                    soft_wrap=True,
                )

        try:
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
        except RunFailed as error:
            print(f"error: {error}", file=sys.stderr)
            return 1

    table = Table(title=f"{options.model} ({data}, synthetic), batch {batch} and {each} core(s) a rank")
    for heading in ("ranks", "images/s", "efficiency", f"{options.variable_update} chose"):
        table.add_column(heading, justify="left" if "chose" in heading else "right")
    for one in runs:
        table.add_row(
            str(one.ranks),
            f"{one.images_per_sec:.2f}",
            f"{efficiency(runs, one):.2f}",
            describe_plan(one.plan),
        )
    console.print(table)
    if len(runs) > 1 and each * ranks[-1] > cores:
        console.print(f"note: {ranks[-1]} ranks x {each} core(s) on {cores} core(s): the ranks share cores.")
    if options.output:
        document = {
            "kind": "scaling",
            "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "host": facts(),
            "model": options.model,
            "data": f"{data} (synthetic)",
            "batch_per_rank": batch,
            "cores_per_rank": each,
            "device": options.device,
            "variable_update": options.variable_update,
            "runs": [
                {**one.as_json(), "efficiency": efficiency(runs, one), "chose": describe_plan(one.plan)}
                for one in runs
            ],
        }
        write_atomic(options.output, json.dumps(document, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
