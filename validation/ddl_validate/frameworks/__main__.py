"""`python -m ddl_validate.frameworks`: a table of the frameworks that trained."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ..common.console import output_console
from ..common.environment import add_environment, require_ddlrun, versions
from ..common.files import write_atomic
from ..common.running import RunFailed, run_program
from ..common.signals import end_on_sigterm
from ..common.store import earlier_rows
from .examples import ALL, Example, fingerprint

_LEARNED = re.compile(r"^ranks (\d+)  test accuracy ([0-9.]+)$", re.MULTILINE)


class NotTrained(Exception):
    """An example did not do what it promises; the text says what and where."""


def train(prefix: Path, example: Example, ranks: int, log: Path, timeout: float) -> tuple[float, float]:
    """Test accuracy and seconds of one example."""
    share = max(1, len(os.sched_getaffinity(0)) // ranks)
    command = [str(prefix / "bin/ddlrun"), "-np", str(ranks), "python", str(example.path)]
    started = time.monotonic()
    text = run_program(
        command, log, timeout, f"{example.framework} at {ranks} rank(s)", {"OMP_NUM_THREADS": str(share)}
    )
    matches = _LEARNED.findall(text)
    if len(matches) != 1 or int(matches[0][0]) != ranks:
        raise NotTrained(
            f"{example.framework}: {ranks} rank(s) should have printed their accuracy once; they printed "
            f"{matches}; log {log}"
        )
    return float(matches[0][1]), time.monotonic() - started


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def options_of(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m ddl_validate.frameworks",
        description="Train the handwritten digits in every framework of an environment, through DDL.",
        epilog="What was trained before in the same environment is not trained again; --fresh does.",
    )
    add_environment(parser)
    parser.add_argument("--ranks", type=int, default=2, help="number of ranks (default 2)")
    names = [example.framework for example in ALL]
    parser.add_argument(
        "--framework", action="append", choices=names, help="may be repeated (default: all that are there)"
    )
    parser.add_argument("--timeout", type=float, default=300, help="limit of one training in seconds (300)")
    parser.add_argument("--fresh", action="store_true", help="train again what was trained before")
    parser.add_argument("--output", type=Path, help="write the results to this JSON file")
    options = parser.parse_args(arguments)
    if options.ranks < 1:
        parser.error("--ranks: at least 1")
    require_ddlrun(parser, options.env)
    return options


def train_all(options: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    """A row for each requested framework of the environment. RunFailed or NotTrained where one fails."""
    prefix: Path = options.env.resolve()
    installed = versions(prefix)
    stored = [] if options.fresh else earlier_rows(options.output, "frameworks")
    earlier = {row.get("fingerprint"): row for row in stored}
    logs = (options.output.parent if options.output else Path.cwd()) / "logs"
    rows: list[dict[str, Any]] = []
    for example in ALL:
        if options.framework and example.framework not in options.framework:
            continue
        absent = [name for name in example.packages if name not in installed]
        if absent:
            console.print(
                f"  {example.framework}: not in this environment ({', '.join(absent)})", markup=False
            )
            continue
        mark = fingerprint(prefix, example, options.ranks)
        if mark in earlier:
            rows.append({**earlier[mark], "earlier": True})
            continue
        console.print(f"  training: {example.framework}", markup=False)
        log = logs / f"{example.path.stem}-{example.path.parent.name}-{options.ranks}.log"
        accuracy, seconds = train(prefix, example, options.ranks, log, options.timeout)
        rows.append(
            {
                "framework": example.framework,
                "version": installed[example.packages[0]],
                "ranks": options.ranks,
                "accuracy": accuracy,
                "seconds": seconds,
                "fingerprint": mark,
                "time": _now(),
                "earlier": False,
            }
        )
    return rows


def table_of(rows: list[dict[str, Any]], ranks: int) -> Table:
    table = Table(title=f"handwritten digits through DDL at {ranks} rank(s)")
    for heading in ("framework", "version", "test accuracy", "seconds"):
        table.add_column(heading, justify="left" if heading in ("framework", "version") else "right")
    for row in rows:
        before = " (before)" if row["earlier"] else ""
        table.add_row(
            row["framework"], row["version"], f"{row['accuracy']:.3f}", f"{row['seconds']:.1f}{before}"
        )
    return table


def main(arguments: list[str] | None = None) -> int:
    options = options_of(arguments)
    end_on_sigterm()
    console = output_console()
    try:
        rows = train_all(options, console)
    except (RunFailed, NotTrained) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if not rows:
        print(
            f"error: {options.env.resolve()} has none of the frameworks; install powerai there",
            file=sys.stderr,
        )
        return 1
    console.print(table_of(rows, options.ranks))
    if options.output:
        document = {
            "kind": "frameworks",
            "time": _now(),
            "ranks": options.ranks,
            "frameworks": rows,
        }
        write_atomic(options.output, json.dumps(document, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
