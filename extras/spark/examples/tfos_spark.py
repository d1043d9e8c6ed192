"""TensorFlowOnSpark, InputMode.SPARK: Spark feeds its rows to TensorFlow, which trains and then predicts.

Run it:  python -m ddl_spark --workers 2 -- python tfos_spark.py --folder results

The rows of an RDD go through a queue to the process of TensorFlow in each executor. Training uses
tf.distribute.MultiWorkerMirroredStrategy. Then each executor predicts by itself; its results are rows again.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

TRAINING = 1500  # images; the others are the test


def train(options, ctx):
    """Runs beside each executor, until it has had its steps."""
    import numpy as np
    import tensorflow as tf
    import tf_keras

    strategy = tf.distribute.MultiWorkerMirroredStrategy()  # first of all: it starts TensorFlow's server
    tf_keras.utils.set_random_seed(1)
    feed = ctx.get_data_feed(train_mode=True)
    share = options["batch"] // options["executors"]

    def rows():
        while not feed.should_stop():
            for image, label in feed.next_batch(share):
                yield np.array(image, dtype="float32"), np.int64(label)

    signature = (tf.TensorSpec((64,), tf.float32), tf.TensorSpec((), tf.int64))
    # Spark deals out partitions as executors are free, so one may have fewer rows than the other. All must
    # take equally many steps: nine tenths of an equal share, and what comes after is dropped. take()
    # also ends the reading ahead there: it would wait for rows of which there may be too few.
    steps = TRAINING * options["epochs"] * 9 // (10 * options["batch"])
    data = tf.data.Dataset.from_generator(rows, output_signature=signature)
    data = data.batch(share, drop_remainder=True).take(steps)
    layers = tf_keras.layers
    with strategy.scope():
        model = tf_keras.Sequential(
            [layers.Dense(128, activation="relu", input_shape=(64,)), layers.Dense(10, dtype="float32")]
        )
        model.compile(
            optimizer=tf_keras.optimizers.Adam(options["rate"]),
            loss=tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
    # What an executor is fed is its own share: nothing is left to divide.
    dealt = strategy.distribute_datasets_from_function(lambda _: data)
    step_ends = []

    class Began(tf_keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            step_ends.append(time.time())

    model.fit(dealt, steps_per_epoch=steps, epochs=1, callbacks=[Began()], verbose=0)
    folder = Path(options["folder"])
    with tempfile.TemporaryDirectory() as other:
        model.save(folder / "model.keras" if ctx.job_name == "chief" else Path(other) / "model.keras")
    if ctx.job_name == "chief":
        speed = (steps - 1) * options["batch"] / (step_ends[-1] - step_ends[0])
        (folder / "speed.json").write_text(json.dumps(speed))
    feed.terminate()


def predict(options, ctx):
    """Runs beside each executor: a result for each row, in their order."""
    import numpy as np
    import tf_keras

    model = tf_keras.models.load_model(Path(options["folder"]) / "model.keras")
    feed = ctx.get_data_feed(train_mode=False)
    while not feed.should_stop():
        batch = feed.next_batch(100)
        if batch:
            predictions = model.predict(np.array(batch, dtype="float32"), verbose=0)
            feed.batch_results(np.argmax(predictions, axis=1).tolist())


def main():
    from pyspark.sql import SparkSession
    from sklearn.datasets import load_digits
    from tensorflowonspark import TFCluster

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--executors", type=int, default=2, help="executors of Spark, each with one core")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=60, help="images of one step, over all executors")
    parser.add_argument("--rate", type=float, default=0.005, help="learning rate")
    parser.add_argument(
        "--folder", type=Path, default=Path("results"), help="for the model; default: results"
    )
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    spark = (
        SparkSession.builder.appName("tfos_spark")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    context = spark.sparkContext
    images, labels = load_digits(return_X_y=True)
    rows = [((image / 16.0).tolist(), int(label)) for image, label in zip(images, labels, strict=True)]
    settings = {**vars(options), "folder": str(options.folder.resolve())}
    common = {"num_executors": options.executors, "num_ps": 0, "input_mode": TFCluster.InputMode.SPARK}

    cluster = TFCluster.run(context, train, settings, master_node="chief", **common)
    cluster.train(context.parallelize(rows[:TRAINING], 4 * options.executors), options.epochs)
    cluster.shutdown(grace_secs=5)  # in which the chief saves the model

    cluster = TFCluster.run(context, predict, settings, **common)
    test = context.parallelize([image for image, _ in rows[TRAINING:]], 2 * options.executors)
    predictions = cluster.inference(test).collect()
    cluster.shutdown()
    spark.stop()
    right = sum(a == label for a, (_, label) in zip(predictions, rows[TRAINING:], strict=True))
    print(f"images/sec: {json.loads((options.folder / 'speed.json').read_text()):.0f}")
    print(f"accuracy: {right / len(predictions):.3f}")


if __name__ == "__main__":
    main()
