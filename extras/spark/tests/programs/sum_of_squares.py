"""Python's processes in the executors compute; also whether these take themselves for ranks."""

import os

from pyspark.sql import SparkSession


def task(number: int) -> tuple[int, bool, int]:
    import ddl

    return number * number, any(name.startswith("PMIX_") for name in os.environ), ddl.size()


spark = SparkSession.builder.config("spark.ui.enabled", "false").getOrCreate()
rows = spark.sparkContext.parallelize(range(100), 4).map(task).collect()
print("sum:", sum(row[0] for row in rows))
print("are ranks:", any(row[1] for row in rows), {row[2] for row in rows})
print("master:", spark.sparkContext.master)
spark.stop()
