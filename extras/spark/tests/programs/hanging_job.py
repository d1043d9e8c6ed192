"""A job whose task never ends, for whoever kills this process."""

import time

from ddl_spark import StandaloneCluster
from pyspark.sql import SparkSession


def task(_: int) -> None:
    print("task runs", flush=True)
    time.sleep(600)


with StandaloneCluster(workers=1, memory="512m") as cluster:
    print("folder:", cluster.folder, flush=True)
    spark = SparkSession.builder.config("spark.ui.enabled", "false").getOrCreate()
    print("keeper parent", cluster.workers[0].pid, flush=True)
    spark.sparkContext.parallelize([0], 1).foreach(task)
