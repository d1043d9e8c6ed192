"""Nodes that are not workers: an evaluator with TensorBoard, and a parameter server in the driver."""

import sys
import time
import urllib.request
from pathlib import Path

from pyspark.sql import SparkSession
from tensorflowonspark import TFCluster

folder = Path(sys.argv[1])


def node(options, ctx):
    """Says what it is; the chief waits until the driver has looked."""
    folder = Path(options["folder"])
    (folder / f"{ctx.job_name}{ctx.task_index}").write_text(str(sorted(ctx.cluster_spec)))
    until = time.monotonic() + 120
    while ctx.job_name in ("chief", "worker") and not (folder / "looked").exists():
        if time.monotonic() > until:
            raise TimeoutError("the driver has not looked")
        time.sleep(0.2)


def found(names):
    until = time.monotonic() + 120
    while not all((folder / name).exists() and (folder / name).read_text() for name in names):
        if time.monotonic() > until:
            raise TimeoutError(f"of {names} there is {list(folder.iterdir())}")
        time.sleep(0.2)
    (roles,) = {(folder / name).read_text() for name in names}
    for name in names:
        (folder / name).unlink()
    return roles


spark = (
    SparkSession.builder.config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .getOrCreate()
)
context = spark.sparkContext
options = {"folder": str(folder)}
logs = folder / "logs"
logs.mkdir()

cluster = TFCluster.run(
    context,
    node,
    options,
    num_executors=2,
    num_ps=0,
    tensorboard=True,
    log_dir=str(logs),
    master_node="chief",
    eval_node=True,
)
print("evaluator:", found(["chief0", "evaluator0"]))
# TensorBoard serves the chief's host alone, which is this one.
address = f"http://localhost:{cluster.tensorboard_url().rpartition(':')[2]}/"
until = time.monotonic() + 120
while True:
    try:
        page = urllib.request.urlopen(address, timeout=30).read()
        break
    except OSError:
        if time.monotonic() > until:
            raise
        time.sleep(1)
print("tensorboard:", b"<title>TensorBoard</title>" in page)
(folder / "looked").touch()
cluster.shutdown()
(folder / "looked").unlink()

cluster = TFCluster.run(context, node, options, num_executors=2, num_ps=1, driver_ps_nodes=True)
print("server in the driver:", found(["ps0", "worker0"]))
(folder / "looked").touch()
cluster.shutdown()
spark.stop()
