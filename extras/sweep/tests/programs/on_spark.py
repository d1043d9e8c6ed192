"""What needs a session of Spark, in one: prints what came out as JSON.  on_spark.py FOLDER MASTER"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import ddl_sweep as sweep
from grid_by import train as grid_train
from ranks_in_trials import train as ranks_train


def times(a: int, b: str) -> str:
    return f"{b * a}{os.getpid() != DRIVER}"


def sometimes(a: int) -> int:
    if a % 2:
        raise LookupError(f"no {a}")
    return a


def loses_its_worker(trial: sweep.Trial) -> float:
    """The first attempt of trial 1 kills Spark's Python worker, that of trial 2 the executor's JVM.

    Above the trial are its supervisor, Spark's Python worker, the daemon that forked that, and the executor.
    """
    starts = trial.folder / "starts"
    with starts.open("a") as file:
        file.write(f"{os.getpid()}\n")
    if trial.number and len(starts.read_text().split()) == 1:
        victim = parent(os.getppid())
        if trial.number == 2:
            victim = parent(parent(victim))
            assert "java" in Path(f"/proc/{victim}/cmdline").read_text()
        os.kill(victim, signal.SIGKILL)
        signal.pause()
    return float(trial.number)


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def shown(result: sweep.Result) -> dict[str, Any]:
    return {"rows": result.rows, "best": result.best.number}


if __name__ == "__main__":
    folder, master = Path(sys.argv[1]), sys.argv[2]
    os.environ["SPARK_MASTER"] = master
    from ddl_sweep.engines.spark import session_of

    DRIVER = os.getpid()
    spark, new = session_of(None)
    out: dict[str, Any] = {"new": new}
    space = {"rate": [0.125, 0.25, 0.5], "width": [1, 2], "kind": ["a", "b"]}
    result = sweep.run(grid_train, space, engine=sweep.Spark(spark), maximize="score", folder=folder / "grid")
    out["grid"] = shown(result)

    lists = {"a": [1, 2, 3], "b": ["x", "y", "z"]}
    out["launch"] = sweep.launch(spark, times, lists)
    out["all"] = sweep.launch(spark, times, sweep.grid({"a": [1, 2], "b": ["x", "y"]}))
    try:
        sweep.launch(spark, sometimes, {"a": [0, 1, 2, 3]})
    except sweep.SweepError as error:
        out["failed"] = [str(error), list(error.values)]
    for wrong in ({}, {"a": [1], "b": [1, 2]}):
        try:
            sweep.launch(spark, sometimes, wrong)
        except sweep.SweepError as error:
            out.setdefault("wrong", []).append(str(error))

    lost = sweep.run(
        loses_its_worker, {"x": [0, 1, 2]}, engine="spark", maximize="y", folder=folder / "lost", at_once=2
    )
    starts = [file.read_text().split() for file in sorted((folder / "lost").glob("trials/*/files/starts"))]
    out["lost"] = [lost.rows, [len(start) for start in starts]]

    barrier = sweep.Spark(spark, barrier_ranks=2)
    ranks = sweep.run(ranks_train, {"x": [1, 10]}, engine=barrier, maximize="total", folder=folder / "ranks")
    out["barrier"] = [[trial.params["x"], trial.metrics["ranks"], trial.value] for trial in ranks.trials]
    try:
        wide = sweep.Spark(spark, barrier_ranks=99)
        sweep.run(ranks_train, {"x": [1]}, engine=wide, maximize="total", folder=folder / "wide")
    except sweep.SweepError as error:
        out["wide"] = str(error)
    spark.stop()
    print(json.dumps(out))
