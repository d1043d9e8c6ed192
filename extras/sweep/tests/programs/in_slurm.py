"""Sweeps by Slurm's arrays, and by dask's workers in jobs of Slurm; prints JSON.  in_slurm.py FOLDER"""

import json
import os
import sys
from pathlib import Path

import ddl_sweep as sweep
from ranks_in_trials import train as ranks_train


def where(x: float) -> dict[str, float]:
    return {"y": -((x - 1) ** 2), "job": int(os.environ["SLURM_JOB_ID"])}


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    out: dict[str, object] = {}
    array = sweep.Slurm(["--ntasks=2"])
    ranks = sweep.run(
        ranks_train, {"x": [1, 10]}, engine=array, maximize="total", folder=folder / "ranks", at_once=1
    )
    out["ranks"] = [[trial.params["x"], trial.metrics["ranks"], trial.value] for trial in ranks.trials]

    space = {"x": sweep.uniform(-5, 5)}
    options = {"sampler": "tpe", "trials": 4, "maximize": "y", "folder": folder / "tpe"}
    tpe = sweep.run(where, space, engine="slurm", at_once=2, **options)
    out["tpe"] = [[trial.params["x"], trial.value] for trial in tpe.trials]

    (folder / "logs").mkdir()
    jobs = {
        "cores": 1,
        "memory": "500MB",
        "job_mem": "500M",
        "walltime": "00:10:00",
        "log_directory": str(folder / "logs"),
        "python": sys.executable,
    }
    engine = sweep.Dask(slurm=jobs, wait_seconds=60)
    workers = sweep.run(
        where, {"x": [0, 1, 2]}, engine=engine, at_once=2, maximize="y", folder=folder / "dask"
    )
    out["dask"] = [workers.best.params["x"], [trial.metrics["job"] > 0 for trial in workers.trials]]
    print(json.dumps(out))
