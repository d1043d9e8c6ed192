"""Parallel experiments: a function or program over many parameters, on one machine or on many.

    import ddl_sweep as sweep

    def train(rate, width):
        ...
        return {"accuracy": 0.97}

    result = sweep.run(train, {"rate": [0.1, 0.01], "width": sweep.uniform(16, 256, integer=True, log=True)},
                       sampler="random", trials=20, maximize="accuracy", folder="digits")
    print(result.best.params, result.best.value)

engine= says where trials run: "local" in processes of this machine, "spark", "dask", or "slurm". The same on
the command line: `python -m ddl_sweep --help`.

    api.py         run(), submit()
    plan.py        what is swept, as tasks          space.py, samplers.py, optuna_study.py, objective.py
    driver.py      tasks to an engine               engines/: local, Spark, dask, Slurm's arrays
    worker.py      a task where it runs             trial_supervisor.py, child.py, trial.py: its processes
    folder.py      what is kept                     result.py, progress.py: what is shown
    over_lists.py  launch(), grid(): Spark alone

No engine's package and no framework is loaded before it is needed.
"""

from __future__ import annotations

from .api import run, submit
from .engines import Dask, Local, Slurm, Spark
from .errors import SweepError
from .over_lists import grid, launch
from .result import Result, TrialResult
from .space import choice, uniform
from .trial import Job, Trial

__all__ = [
    "Dask",
    "Job",
    "Local",
    "Result",
    "Slurm",
    "Spark",
    "SweepError",
    "Trial",
    "TrialResult",
    "choice",
    "grid",
    "launch",
    "run",
    "submit",
    "uniform",
]
