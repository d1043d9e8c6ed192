"""A job of two tasks, one on each worker. One worker is killed while both run; the job is to go on."""

import signal
import sys
import threading
import time
from pathlib import Path

from ddl_spark import StandaloneCluster
from pyspark.sql import SparkSession

shared = Path(sys.argv[1])


def task(number: int) -> int:
    (shared / f"began{number}").touch()
    while not (shared / "killed").exists():
        time.sleep(0.05)
    return number * number


def until(what: str, found: object) -> None:
    end = time.monotonic() + 240
    while not found():
        if time.monotonic() > end:
            raise SystemExit(f"not within 240 s: {what}")
        time.sleep(0.1)


with StandaloneCluster(workers=2, cores=1, memory="512m") as cluster:
    spark = SparkSession.builder.config("spark.ui.enabled", "false").getOrCreate()
    context = spark.sparkContext
    context.setLogLevel("OFF")
    found: list[int] = []
    job = threading.Thread(
        target=lambda: found.extend(context.parallelize(range(2), 2).map(task).collect()), daemon=True
    )
    job.start()
    until("both tasks have begun", lambda: all((shared / f"began{n}").exists() for n in range(2)))
    print("executors:", [len(worker.executors()) for worker in cluster.workers])
    executor = cluster.workers[1].executors()[0]
    cluster.workers[1].kill()
    until("the worker has ended", lambda: cluster.workers[1].status() is not None)
    assert cluster.workers[1].status() == -signal.SIGKILL, cluster.workers[1].status()
    # Spark's executor leaves with its worker
    until("its executor has ended", lambda: not Path(f"/proc/{executor}").exists())
    until("the master knows", lambda: cluster.alive_workers() == 1)
    (shared / "killed").touch()
    job.join(60)
    print("result:", found)
    cluster.add_worker()
    cluster.wait_for_workers(2)
    print("workers:", cluster.alive_workers())
    spark.stop()
