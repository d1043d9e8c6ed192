"""`python -m ddl_sweep`: sweeps of programs, and what a folder holds."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from . import engines
from .api import go, run_alone, send
from .definition import SAMPLERS, Definition, define
from .errors import SweepError, TrialLost
from .result import Result
from .space import count, parse_parameter
from .study import Study

_INTRODUCTION = """\
Runs a program with many parameters, several at a time, and keeps what each run gave.

  python -m ddl_sweep run digits --param rate=0.1,0.01 --param width=16..256:log \\
      --sampler random --trials 20 --maximize accuracy -- python train.py --rate {rate} --width {width}

{rate} is replaced by the trial's value; {params} by all parameters as JSON; {number} and {folder} by the
trial's number and its own folder. The program prints its result as a line of its own:

  accuracy: 0.97

The folder (here: digits) holds all results. The same command continues a sweep that was interrupted, and so
does `python -m ddl_sweep run digits` alone.
"""
_PARAMETERS = """\
parameters:
  --param rate=0.1,0.01,0.001     a list
  --param width=16..256           a range of whole numbers, both ends included
  --param rate=1e-4..1e-1:log     a range, spread evenly by the logarithm
  --param decay=0..1:float        a range of all numbers between whole ones
  --space FILE                    a TOML or JSON file:  rate = [0.1, 0.01]
                                  width = {uniform = [16, 256], integer = true, log = true}
"""


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m ddl_sweep", description=_INTRODUCTION, formatter_class=raw)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, summary in (
        ("run", "run a sweep, or continue it, and wait for its end"),
        ("submit", "submit the trials as an array of Slurm's, which needs no driver"),
        ("status", "how many trials are done, failed, running and left"),
        ("best", "the best trial"),
        ("table", "all trials that have ended"),
        ("trial", "run one trial here, as the tasks of an array do"),
    ):
        sweeps = name in ("run", "submit")
        command = commands.add_parser(
            name,
            help=summary,
            epilog=_PARAMETERS if sweeps else None,
            formatter_class=raw,
            usage=f"python -m ddl_sweep {name} [FOLDER] [options] [-- PROGRAM WORDS…]" if sweeps else None,
        )
        optional: dict[str, Any] = {} if name == "trial" else {"nargs": "?", "default": "sweep"}
        command.add_argument(
            "folder", metavar="FOLDER", help="default: sweep" if optional else None, **optional
        )
        if sweeps:
            _add_options(command)
        if name in ("run", "status", "best", "table"):
            command.add_argument("--json", action="store_true", help="as JSON")
        if name == "run":
            command.add_argument("--engine", choices=engines.NAMES, default="local", help="default: local")
            command.add_argument("--quiet", action="store_true", help="show no progress")
        if name == "table":
            command.add_argument("--csv", action="store_true", help="as CSV")
        if name == "trial":
            command.add_argument("number", metavar="NUMBER", type=int)
    return parser


def _add_options(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("--param", action="append", default=[], metavar="NAME=VALUES", help="see below")
    add("--space", type=Path, metavar="FILE", help="a TOML or JSON file of parameters")
    add("--sampler", choices=SAMPLERS, help="default: grid for lists, else random")
    add("--trials", type=int, metavar="N", help="how many; a grid has its own number")
    add("--at-once", type=int, metavar="N", help="how many run at the same time")
    goal = command.add_mutually_exclusive_group()
    goal.add_argument(
        *("--maximize", "--metric"), metavar="METRIC", help="the largest value is best; default: value"
    )
    goal.add_argument("--minimize", metavar="METRIC", help="the smallest value is best")
    add("--seed", type=int, default=0, metavar="N", help="default: 0")
    add("--retries", type=int, default=0, metavar="N", help="of a failed trial")
    add("--limit", type=float, metavar="SECONDS", help="a trial may take")
    add("--retry-failed", action="store_true", help="run trials again that failed before")
    add("--sbatch", action="append", default=[], metavar="OPTION", help="of sbatch, as in --sbatch=--time=30")


def _space(options: argparse.Namespace) -> dict[str, Any]:
    space: dict[str, Any] = {}
    if options.space is not None:
        try:
            text = options.space.read_text("utf-8")
            space = json.loads(text) if options.space.suffix == ".json" else tomllib.loads(text)
        except OSError as error:
            raise SweepError(f"--space {options.space}: {error.strerror}; give a readable file") from None
        except ValueError as error:
            raise SweepError(
                f"--space {options.space}: {error}; write TOML, or JSON in a .json file"
            ) from None
        if not isinstance(space, dict):
            raise SweepError(f"--space {options.space}: no table of parameters; write rate = [0.1, 0.01]")
    for text in options.param:
        name, parameter = parse_parameter(text)
        if name in space:
            raise SweepError(f"--param {text}: the parameter {name} is given twice; leave one out")
        space[name] = parameter
    return space


def _definition(options: argparse.Namespace, program: Sequence[str]) -> Definition:
    """The sweep of the command line, or that of the folder where no program is given."""
    space = _space(options)
    if not program and not space:
        study = Study(options.folder)
        trials = study.trials
        if options.trials is not None:
            trials = count(study.identity["sampler"], study.identity["space"], options.trials)
        return Definition(study.identity, trials, study.how)
    names = ("sampler", "trials", "maximize", "minimize", "seed", "retries")
    arguments = {name: getattr(options, name) for name in names}
    return define(list(program), space, limit_seconds=options.limit, **arguments)


def _show_best(result: Result, as_json: bool) -> None:
    best = result.best
    if as_json:
        print(json.dumps(asdict(best)))
        return
    print(f"best trial: {best.number}")
    for name, value in best.params.items():
        print(f"  {name} = {value if isinstance(value, str) else json.dumps(value)}")
    for name, number in best.metrics.items():
        print(f"{name}: {number:g}")


def _show_status(study: Study, as_json: bool) -> None:
    outcomes, begun = study.outcomes(), study.begun()
    statuses = [outcome["status"] for outcome in outcomes.values()]
    counts = {name: statuses.count(name) for name in ("done", "pruned", "failed")}
    counts["begun"] = len(begun - outcomes.keys())
    counts["left"] = max(0, study.trials - len(begun))
    if as_json:
        print(json.dumps({"trials": study.trials, **counts}))
    else:
        print(f"{study.trials} trials: " + ", ".join(f"{count} {name}" for name, count in counts.items()))


def _terminated(number: int, _: Any) -> None:
    raise SystemExit(128 + number)


def main(argv: Sequence[str]) -> int:
    """Returns the exit code: 0, 1 after a failure, 2 for a wrong command line, 130 after Ctrl-C."""
    arguments, program = list(argv), []
    if "--" in arguments:
        cut = arguments.index("--")
        arguments, program = arguments[:cut], arguments[cut + 1 :]
    parser = _parser()
    options = parser.parse_args(arguments)
    if program and options.command not in ("run", "submit"):
        parser.error(f"{options.command} takes no program")
    signal.signal(signal.SIGTERM, _terminated)  # the trials end with it
    try:
        return _do(options, program)
    except (SweepError, TrialLost) as error:
        print(f"ddl_sweep: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("ddl_sweep: interrupted; the same command continues the sweep", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _do(options: argparse.Namespace, program: Sequence[str]) -> int:
    if options.command == "run":
        if options.sbatch and options.engine != "slurm":
            raise SweepError("--sbatch is for Slurm's arrays; add --engine slurm")
        engine = engines.Slurm(options.sbatch) if options.engine == "slurm" else options.engine
        definition = _definition(options, program)
        result = go(options.folder, definition, engine, options.at_once, options.retry_failed, options.quiet)
        _show_best(result, options.json)
    elif options.command == "submit":
        definition, engine = _definition(options, program), engines.Slurm(options.sbatch)
        job = send(options.folder, definition, engine, options.at_once, options.retry_failed)
        print(f"submitted job {job}" if job else "all trials have ended")
    elif options.command == "trial":
        outcome = run_alone(options.folder, options.number)
        print(f"trial {options.number}: {outcome['status']}")
        if outcome["status"] == "failed":
            print(outcome["error"], file=sys.stderr)
            return 1
    elif options.command == "status":
        _show_status(Study(options.folder), options.json)
    elif options.command == "best":
        _show_best(Result.of(options.folder), options.json)
    elif options.json:
        print(json.dumps(Result.of(options.folder).rows))
    elif options.csv:
        print(Result.of(options.folder).to_csv(), end="")
    else:
        print(Result.of(options.folder).table())
    return 0
