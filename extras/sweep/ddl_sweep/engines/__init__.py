"""Where trials run: processes of this machine, Spark's executors, dask's workers, tasks of Slurm's arrays.

All but Slurm, whose tasks need no driver, have the methods of Local, which say what they must do.
"""

from __future__ import annotations

import os
from typing import Any

from ..errors import SweepError
from .dask import Dask
from .local import Local
from .slurm import Slurm
from .spark import Spark

NAMES = ("local", "spark", "dask", "slurm")
Engine = Local | Spark | Dask

__all__ = ["NAMES", "Dask", "Engine", "Local", "Slurm", "Spark", "engine_of"]


def engine_of(engine: Any) -> Engine | Slurm:
    """An engine, of a name or as it is given.

    Raises:
        SweepError: It is none.
    """
    if isinstance(engine, Engine | Slurm):
        return engine
    if engine not in NAMES:
        names = ", ".join(NAMES)
        raise SweepError(f"the engine {engine!r} is unknown; take one of {names}, or an engine of sweep")
    if engine == "dask" and "SLURM_JOB_ID" in os.environ:
        return Dask(slurm={})
    chosen: Engine | Slurm = {"local": Local, "spark": Spark, "dask": Dask, "slurm": Slurm}[engine]()
    return chosen
