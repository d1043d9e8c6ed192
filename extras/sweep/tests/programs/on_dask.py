"""A grid and a trial that kills its worker, by a client of dask; prints JSON.  on_dask.py FOLDER"""

import json
import os
import signal
import sys
from pathlib import Path

import ddl_sweep as sweep
from distributed import Client, LocalCluster
from grid_by import train as grid_train


def loses_its_worker(trial: sweep.Trial) -> float:
    """The first attempt of trial 1 kills the worker, whose child the trial's supervisor is."""
    starts = trial.folder / "starts"
    with starts.open("a") as file:
        file.write(f"{os.getpid()}\n")
    if trial.number == 1 and len(starts.read_text().split()) == 1:
        worker = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1]
        os.kill(int(worker), signal.SIGKILL)
        signal.pause()
    return float(trial.number)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    space = {"rate": [0.125, 0.25, 0.5], "width": [1, 2], "kind": ["a", "b"]}
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        engine = sweep.Dask(client)
        grid = sweep.run(grid_train, space, engine=engine, maximize="score", folder=folder / "grid")
        lost = sweep.run(
            loses_its_worker, {"x": [0, 1, 2]}, engine=engine, maximize="y", folder=folder / "lost"
        )
    starts = [file.read_text().split() for file in sorted((folder / "lost").glob("trials/*/files/starts"))]
    out = {"rows": grid.rows, "best": grid.best.number}
    print(json.dumps({"grid": out, "lost": [lost.rows, [len(start) for start in starts]]}))
