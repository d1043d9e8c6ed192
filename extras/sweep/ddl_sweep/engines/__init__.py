"""Where trials run: processes of this machine, Spark's executors, dask's workers, tasks of Slurm's arrays."""

from __future__ import annotations

import os
from typing import Any

from ..errors import SweepError
from .base import Engine
from .dask import Dask
from .local import Local
from .slurm import Slurm
from .spark import Spark

NAMES = ("local", "spark", "dask", "slurm")

__all__ = ["NAMES", "Dask", "Engine", "Local", "Slurm", "Spark", "engine_of"]


def engine_of(engine: Any) -> Engine | Slurm:
    """An engine, of a name or as it is given.

    Raises:
        SweepError: It is none.
    """
    if isinstance(engine, Engine | Slurm):
        return engine
    if engine == "local":
        return Local()
    if engine == "spark":
        return Spark()
    if engine == "dask":
        in_slurm = "SLURM_JOB_ID" in os.environ
        return Dask(slurm={}) if in_slurm else Dask()
    if engine == "slurm":
        return Slurm()
    raise SweepError(
        f"the engine {engine!r} is unknown; take one of {', '.join(NAMES)}, or an engine of sweep"
    )
