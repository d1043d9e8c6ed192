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

    api.py          run(), submit(): ask, run, tell    definition.py, space.py, objective.py: what is swept
    study.py        the store, a study of Optuna        result.py, progress.py: what is shown
    engines/        local, Spark, dask, Slurm's arrays
    worker.py       a trial where it runs               trial_process.py, trial.py: its processes
    over_lists.py   launch(), grid(): Spark alone

No engine's package and no framework is loaded before it is needed.
"""

from __future__ import annotations

from .api import run, submit
from .engines import Dask, Local, Slurm, Spark
from .errors import SweepError
from .over_lists import grid, launch
from .result import Result, TrialResult
from .space import uniform
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
    "grid",
    "launch",
    "run",
    "submit",
    "uniform",
]
