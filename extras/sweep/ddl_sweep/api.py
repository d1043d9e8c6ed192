"""run() and submit(): a sweep from its start to its result."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from .definition import Definition, define
from .engines import Engine, Slurm, engine_of, slurm
from .errors import SweepError, TrialLost
from .progress import Progress
from .result import Result
from .study import Study, owned
from .worker import Outcome, Task, failed, run_trial

#: A function of a trial or of the parameters, or the words of a program.
Train = Callable[..., Any] | Sequence[str]
#: How often a trial may lose what runs it, before it counts as failed: it may be what kills its worker.
_LOSSES = 3


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
        seed: Of the samplers that are given by name.
        retries: How often a failed trial is tried again.
        limit_seconds: A trial that takes longer is ended, and has failed.
        pruner: "median", "halving", "hyperband", or a pruner of Optuna, for trial.should_stop().
        retry_failed: Trials that failed before run again.
        quiet: Show no progress.

    Raises:
        SweepError: Something given is wrong, the folder has another sweep, the engine is gone, or all trials
            failed.
    """
    definition = define(
        train,
        space,
        sampler=sampler,
        trials=trials,
        maximize=maximize,
        minimize=minimize,
        seed=seed,
        retries=retries,
        limit_seconds=limit_seconds,
        pruner=pruner,
    )
    return go(folder, definition, engine, at_once, retry_failed, quiet)


def submit(
    train: Train,
    space: Mapping[str, Any],
    *,
    at_once: int | None = None,
    folder: str | os.PathLike[str] = "sweep",
    retry_failed: bool = False,
    options: Sequence[str] = (),
    **arguments: Any,
) -> str | None:
    """Submits the trials that have no result as an array of Slurm's, and returns at once.

    Args:
        options: Of sbatch, for each trial, such as ["--time=30"].
        arguments: sampler, trials, maximize, minimize, seed, retries, limit_seconds and pruner. They and the
            others are as for run().

    Returns:
        The number of Slurm's job; None if all trials have ended. Result.of(folder) reads the results.
    """
    return send(folder, define(train, space, **arguments), Slurm(options), at_once, retry_failed)


def go(
    folder: str | os.PathLike[str],
    definition: Definition,
    engine: str | Engine | Slurm = "local",
    at_once: int | None = None,
    retry_failed: bool = False,
    quiet: bool = False,
) -> Result:
    """Runs what is left of a sweep."""
    _check_at_once(at_once)
    chosen = engine_of(engine)
    with owned(Path(folder)):
        study = Study(folder, definition)
        numbers = study.unfinished(retry_failed)
        if numbers:
            with Progress(study, quiet) as progress:
                way = _by_array if isinstance(chosen, Slurm) else _drive
                way(study, chosen, at_once, numbers, progress)  # type: ignore[arg-type]
    result = Result.of(study)
    if not result.done:
        errors = {str(trial.error).rstrip() for trial in result.failed}
        last = next(iter(errors), "all trials were pruned")
        raise SweepError(f"none of {len(result.trials)} trials is done, in {study.folder}; one says:\n{last}")
    return result


def send(
    folder: str | os.PathLike[str],
    definition: Definition,
    engine: Slurm,
    at_once: int | None = None,
    retry_failed: bool = False,
) -> str | None:
    """Submits what is left of a sweep."""
    _check_at_once(at_once)
    with owned(Path(folder)):
        study = Study(folder, definition)
        numbers = study.unfinished(retry_failed)
        return engine.submit(study, numbers, at_once) if numbers else None


def run_alone(folder: str | os.PathLike[str], number: int) -> Outcome:
    """Runs one trial of a folder here, without a driver: what a task of an array does."""
    study = Study(folder)
    if not 0 <= number < study.trials:
        raise SweepError(f"no trial {number}: the sweep in {folder} has 0 to {study.trials - 1}")
    if number not in study.outcomes():
        outcome = run_trial(study.begin(number, hosts="job" if "SLURM_JOB_ID" in os.environ else None))
        assert outcome is not None
        study.end(number, outcome)
    return study.outcomes()[number]


def _drive(study: Study, engine: Engine, at_once: int | None, numbers: list[int], progress: Progress) -> None:
    """Asks, runs and tells, several trials at a time. An exception, such as that of Ctrl-C, ends those that
    run without an outcome.
    """
    with ExitStack() as stack:
        stack.callback(engine.stop)
        width = engine.start(at_once)
        pool = stack.enter_context(ThreadPoolExecutor(width, thread_name_prefix="trial"))
        running: dict[Future[Outcome | None], int] = {}
        try:
            while numbers or running:
                while numbers and len(running) < width:
                    number = numbers.pop(0)
                    running[pool.submit(_run, engine, study.begin(number), progress)] = number
                for future in wait(running, timeout=1.0, return_when=FIRST_COMPLETED).done:
                    outcome, number = future.result(), running.pop(future)
                    assert outcome is not None
                    study.end(number, outcome)
                    progress.ended(study.outcomes()[number])
        except BaseException:
            engine.cancel()
            raise


def _run(engine: Engine, task: Task, progress: Progress) -> Outcome | None:
    """Runs one trial, and again where what ran it is gone."""
    for losses in range(1, _LOSSES + 1):
        try:
            return engine.run(task)
        except TrialLost as error:
            why = str(error)
            if losses < _LOSSES:
                progress.lost(task["number"], why)
    outcome = failed(f"lost {_LOSSES} times what ran it, at last: {why}")
    return outcome | {"seconds": 0.0, "attempts": _LOSSES, "host": ""}


def _by_array(
    study: Study, engine: Slurm, at_once: int | None, numbers: list[int], progress: Progress
) -> None:
    job = engine.submit(study, numbers, at_once)
    try:
        slurm.wait(study, numbers, job, progress.ended)
    except (KeyboardInterrupt, SystemExit):
        slurm.cancel(job)
        raise


def _check_at_once(at_once: int | None) -> None:
    if at_once is not None and at_once < 1:
        raise SweepError(f"at_once={at_once}: give 1 or more")
