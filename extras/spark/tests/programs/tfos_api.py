"""TFParallel, the pipeline's TFEstimator and TFModel, and rows as TFRecords without tensorflow-hadoop."""

import os
import sys
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession
from tensorflowonspark import TFParallel, dfutil
from tensorflowonspark.pipeline import TFEstimator, TFModel

folder = Path(sys.argv[1])


def alone(args, ctx):
    """Independent instances: each says who it is."""
    import tensorflow as tf

    value = float(tf.reduce_sum(tf.range(5)))
    (Path(args["folder"]) / f"alone{ctx.worker_num}").write_text(f"{ctx.num_workers} {value}")


def train(args, ctx):
    """Fits y = x · w by least squares from the share of this node; the chief saves it as a model to serve."""
    import numpy as np
    import tensorflow as tf

    feed = ctx.get_data_feed(train_mode=True, input_mapping=args.input_mapping)
    xs, ys = [], []
    while not feed.should_stop():
        batch = feed.next_batch(args.batch_size)
        xs += batch["x"]
        ys += batch["y"]
    if ctx.job_name != "chief":
        return
    weights = np.linalg.lstsq(np.array(xs), np.array(ys), rcond=None)[0].astype("float32")

    class Line(tf.Module):
        def __init__(self):
            super().__init__()
            self.weights = tf.Variable(weights[:, None])

        @tf.function(input_signature=[tf.TensorSpec((None, 3), tf.float32, name="x")])
        def __call__(self, x):
            return {"found": tf.matmul(x, self.weights)}

    line = Line()
    tf.saved_model.save(line, args.export_dir, signatures={"serving_default": line.__call__})


spark = (
    SparkSession.builder.config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .getOrCreate()
)
context = spark.sparkContext
for barrier in (False, True):
    TFParallel.run(context, alone, {"folder": str(folder)}, 2, use_barrier=barrier)
    print(f"alone {barrier}:", sorted(path.read_text() for path in folder.glob("alone*")))
    for path in folder.glob("alone*"):
        path.unlink()

random = np.random.default_rng(4)
true = np.array([1.0, -2.0, 0.5])
points = random.normal(size=(40, 3))
rows = [(point.tolist(), float(point @ true)) for point in points]
# Spark deals out partitions as executors are free: of four, each of the two nodes gets some.
table = spark.createDataFrame(context.parallelize(rows, 4), "x array<double>, y double")
export = str(folder / "line")
estimator = (
    TFEstimator(train, {"argv": None})
    .setInputMapping({"x": "x", "y": "y"})
    .setClusterSize(2)  # all executors: rows fail on one that has no node
    .setMasterNode("chief")
    .setEpochs(1)
    .setBatchSize(16)
    .setExportDir(export)
    .setGraceSecs(5)
)
model = estimator.fit(table)
assert isinstance(model, TFModel)
model.setInputMapping({"x": "x"}).setOutputMapping({"found": "found"}).setSignatureDefKey("serving_default")
model.setExportDir(export).setTagSet("serve")
found = np.array([row["found"] for row in model.transform(table).collect()])
print("largest difference:", float(np.abs(found.ravel() - points @ true).max()))


def write(number, examples):
    """What dfutil.saveAsTFRecords does by a jar: a file for each partition."""
    import tensorflow as tf

    with tf.io.TFRecordWriter(f"{records}/part-{number:05d}") as file:
        for example, _ in examples:
            file.write(bytes(example))
    return []


def read(paths):
    """What dfutil.loadTFRecords does by a jar."""
    import tensorflow as tf

    for path in paths:
        found = ((record.numpy(), None) for record in tf.data.TFRecordDataset(path))
        yield from dfutil.fromTFExample(found)


records = str(folder / "records")
os.mkdir(records)
table.rdd.mapPartitions(dfutil.toTFExample(table.dtypes)).mapPartitionsWithIndex(write).count()
files = sorted(str(path) for path in Path(records).iterdir())
again = spark.createDataFrame(context.parallelize(files, 2).mapPartitions(read))
key = lambda row: row["y"]  # noqa: E731
pairs = zip(sorted(table.collect(), key=key), sorted(again.collect(), key=key), strict=True)
close = [np.allclose(old["x"], new["x"]) and np.isclose(old["y"], new["y"]) for old, new in pairs]
print("records:", len(files) > 1, len(close), all(close))
spark.stop()
