"""`python -m ddl_spark`: a cluster around a command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ddl_spark import ranks
from ddl_spark.cluster import SparkClusterError, StandaloneCluster
from ddl_spark.command import Command


def _alone(options: argparse.Namespace) -> int:
    with StandaloneCluster(
        options.workers, options.cores, options.memory, options.folder, limit=options.limit
    ) as cluster:
        return Command(options.command, cluster).result()


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m ddl_spark",
        usage="%(prog)s [options] -- COMMAND…",
        description="Runs COMMAND with a Spark standalone cluster, which ends with it. COMMAND finds it "
        "by its environment: SPARK_MASTER, MASTER, SPARK_CONF_DIR. {master} in its words is replaced by the "
        "master's address. Under ddlrun every rank has workers, and rank 0 runs COMMAND.",
    )
    parser.add_argument(
        "--workers", type=int, help="on this machine, default 2; under ddlrun of each rank, default 1"
    )
    parser.add_argument("--cores", type=int, default=1, help="of each worker: its tasks at a time; default 1")
    parser.add_argument("--memory", default="1g", help="of each worker, such as 512m or 4g; default 1g")
    parser.add_argument("--folder", type=Path, help="keep logs and work there; default: a temporary folder")
    parser.add_argument(
        "--limit", type=float, default=60.0, help="seconds in which the cluster must be complete; default 60"
    )
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="a program and its arguments")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """The program; returns the exit code of COMMAND, or 2."""
    import ddl

    options = _options(argv)
    in_job = ddl.is_initialized() and ddl.size() > 1
    if options.workers is None:
        options.workers = 1 if in_job else 2
    try:
        return ranks.run(ddl, options) if in_job else _alone(options)
    except (SparkClusterError, ValueError, OSError) as error:
        print(f"ddl_spark: {error}", file=sys.stderr)
        return 2
