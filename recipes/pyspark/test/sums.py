"""Spark on this machine: sums of rows, by SQL and by Python functions, in one session."""

import os

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
try:
    rows = spark.range(1000).withColumn("k", f.col("id") % 3)
    sums = {row["k"]: row["s"] for row in rows.groupBy("k").agg(f.sum("id").alias("s")).collect()}
    assert sums == {k: sum(range(k, 1000, 3)) for k in range(3)}, sums
    # Python's own processes do this one
    total = spark.sparkContext.parallelize(range(100), 2).map(lambda n: n * n).sum()
    assert total == sum(n * n for n in range(100)), total
    # rows go to pandas and back by Arrow
    table = rows.limit(10).toPandas()
    assert int(spark.createDataFrame(table).agg(f.sum("id")).first()[0]) == 45
    print("Spark", spark.version, "sums", sums)
finally:
    spark.stop()
