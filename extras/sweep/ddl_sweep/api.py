"""run() and submit(): a sweep from its start to its result."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .driver import drive
from .engines import Engine, Slurm, engine_of
from .engines import slurm as arrays
from .errors import SweepError
from .folder import Folder
from .plan import Plan
from .progress import Progress
from .result import Result
from .worker import Outcome, run_trial

#: A function of a trial or of the parameters, or the words of a program.
Train = Callable[..., Any] | Sequence[str]


def run(
    train: Train,
    space: Mapping[str, Any],
    *,
    engine: str | Engine | Slurm = "local",
    sampler: Any = None,
    trials: int | None = None,
    at_once: int | None = None,
    maximize: str | None = None,
    minimize: str | None = None,
    folder: str | os.PathLike[str] = "sweep",
    seed: int = 0,
    retries: int = 0,
    limit_seconds: float | None = None,
    pruner: Any = None,
    retry_failed: bool = False,
    quiet: bool = False,
) -> Result:
    """Runs a sweep, or continues the one in the folder, and returns when all its trials have ended.

    Args:
        train: `train(trial)`, where the first argument is called trial, else `train(**params)`. It returns a
            number, or a dict of numbers. Or the words of a program, as in ["python", "train.py", "{rate}"],
            which prints lines like `accuracy: 0.97`.
        space: Each parameter's name with a list of values, or uniform(…).
        engine: "local", "spark", "dask", "slurm", or an engine, as in Spark(session, barrier_ranks=2).
        sampler: "grid", "random", "tpe", "gp", "cmaes", or a sampler of Optuna. Default: a grid of lists,
            else random.
        trials: How many; a grid has its own number. A larger one than before continues the sweep.
        at_once: How many run at the same time; default: as many as the engine has room for.
        maximize: The metric whose largest value is best. It names the number that train returns.
        minimize: The metric whose smallest value is best.
        folder: Keeps the sweep. It should be on a file system that all hosts share.
        seed: Of the random sampler, and of Optuna's that are given by name.
        retries: How often a failed trial is tried again.
        limit_seconds: A trial that takes longer is ended, and has failed.
        pruner: "median", "halving", "hyperband", or a pruner of Optuna, for trial.should_stop().
        retry_failed: Trials that failed before run again.
        quiet: Show no progress.

    Raises:
        SweepError: Something given is wrong, the folder has another sweep, the engine is gone, or all trials
            failed.
    """
    plan = Plan.new(
        train,
        space,
        folder,
        sampler=sampler,
        trials=trials,
        maximize=maximize,
        minimize=minimize,
        seed=seed,
        retries=retries,
        limit_seconds=limit_seconds,
        pruner=pruner,
    )
    return go(plan, engine, at_once, retry_failed, quiet)


def go(
    plan: Plan,
    engine: str | Engine | Slurm = "local",
    at_once: int | None = None,
    retry_failed: bool = False,
    quiet: bool = False,
) -> Result:
    """Runs what is left of a plan."""
    _check_at_once(at_once)
    chosen = engine_of(engine)
    settings = plan.settings
    with plan.folder.owned():
        plan.save()
        numbers = plan.unfinished(retry_failed)
        if numbers:
            display = Progress(settings["trials"], _wanted(plan), settings["metric"], settings["goal"], quiet)
            with display as progress:
                if isinstance(chosen, Slurm):
                    _by_array(plan, chosen, at_once, numbers, progress)
                else:
                    plan.catch_up()
                    drive(plan, chosen, at_once, numbers, progress)
    result = Result.of(plan.folder)
    if not result.done:
        errors = {str(trial.error).rstrip() for trial in result.failed}
        last = next(iter(errors), "all trials were pruned")
        raise SweepError(
            f"none of {len(result.trials)} trials is done, in {plan.folder.path}; one says:\n{last}"
        )
    return result


def submit(
    train: Train,
    space: Mapping[str, Any],
    *,
    sampler: Any = None,
    trials: int | None = None,
    at_once: int | None = None,
    maximize: str | None = None,
    minimize: str | None = None,
    folder: str | os.PathLike[str] = "sweep",
    seed: int = 0,
    retries: int = 0,
    limit_seconds: float | None = None,
    pruner: Any = None,
    retry_failed: bool = False,
    options: Sequence[str] = (),
) -> str | None:
    """Submits the trials that have no result as an array of Slurm's, and returns at once.

    Args:
        options: Of sbatch, for each trial, such as ["--time=30"]. The others are as for run().

    Returns:
        The number of Slurm's job; None if all trials have ended. Result.of(folder) reads the results.
    """
    plan = Plan.new(
        train,
        space,
        folder,
        sampler=sampler,
        trials=trials,
        maximize=maximize,
        minimize=minimize,
        seed=seed,
        retries=retries,
        limit_seconds=limit_seconds,
        pruner=pruner,
    )
    return send(plan, Slurm(options), at_once, retry_failed)


def send(plan: Plan, slurm: Slurm, at_once: int | None = None, retry_failed: bool = False) -> str | None:
    _check_at_once(at_once)
    with plan.folder.owned():
        plan.save()
        numbers = plan.unfinished(retry_failed)
        return arrays.submit(plan.folder, numbers, at_once, slurm) if numbers else None


def run_alone(folder: str | os.PathLike[str], number: int) -> Outcome:
    """Runs one trial of a folder here, without a driver: what a task of an array does."""
    plan = Plan.of(Folder(folder))
    if not 0 <= number < plan.settings["trials"]:
        raise SweepError(f"no trial {number}: the sweep in {folder} has 0 to {plan.settings['trials'] - 1}")
    earlier = plan.folder.result(number)
    if earlier is not None:
        return earlier
    outcome = run_trial(plan.begin(number, hosts="job" if "SLURM_JOB_ID" in os.environ else None, alone=True))
    plan.end(outcome, alone=True)
    return outcome


def _by_array(plan: Plan, slurm: Slurm, at_once: int | None, numbers: list[int], progress: Progress) -> None:
    job = arrays.submit(plan.folder, numbers, at_once, slurm)
    try:
        arrays.wait(plan.folder, numbers, job, progress.ended)
    except (KeyboardInterrupt, SystemExit):
        arrays.cancel(job)
        raise


def _wanted(plan: Plan) -> dict[int, dict[str, Any]]:
    return {n: result for n, result in plan.folder.results().items() if n < plan.settings["trials"]}


def _check_at_once(at_once: int | None) -> None:
    if at_once is not None and at_once < 1:
        raise SweepError(f"at_once={at_once}: give 1 or more")
