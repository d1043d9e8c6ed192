"""TensorFlowOnSpark, InputMode.TENSORFLOW: Spark's executors start TensorFlow, which reads the data itself.

Run it:  python -m ddl_spark --workers 2 -- python tfos_tensorflow.py --folder results

Each executor becomes a worker of tf.distribute.MultiWorkerMirroredStrategy. When one is lost, Spark starts
the work of both again, and they go on from the last finished epoch. All hosts must see the folder.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

TRAINING = 1500  # images; the others are the test


def model_of(strategy, rate):
    """Keras 2: Keras 3 does not train under MultiWorkerMirroredStrategy."""
    import tf_keras

    layers = tf_keras.layers
    with strategy.scope():
        model = tf_keras.Sequential(
            [
                layers.Dense(128, activation="relu", input_shape=(64,)),
                layers.Dense(10, dtype="float32"),
            ]
        )
        model.compile(
            optimizer=tf_keras.optimizers.Adam(rate),
            loss=tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
    return model


def train(options, ctx):
    """Runs in each executor. TF_CONFIG, set by TensorFlowOnSpark, says who the others are."""
    import tensorflow as tf
    import tf_keras
    from sklearn.datasets import load_digits

    folder = Path(options["folder"])
    strategy = tf.distribute.MultiWorkerMirroredStrategy()  # first of all: it starts TensorFlow's server
    tf_keras.utils.set_random_seed(1)
    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).astype("float32")
    data = tf.data.Dataset.from_tensor_slices((images[:TRAINING], labels[:TRAINING]))
    data = data.shuffle(TRAINING, seed=3).repeat().batch(options["batch"])  # of all workers together
    sharding = tf.data.Options()
    sharding.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA

    class Epochs(tf_keras.callbacks.Callback):
        """Notes when each epoch ends."""

        def __init__(self):
            super().__init__()
            self.ends = []

        def on_epoch_end(self, epoch, logs=None):
            self.ends.append(time.time())
            if ctx.job_name == "chief":
                with (folder / "epochs.txt").open("a") as file:
                    print(epoch, file=file)
            time.sleep(options["pause"])

    steps, clock = TRAINING // options["batch"], Epochs()
    model = model_of(strategy, options["rate"])
    # A worker that is not the chief writes its backup too; the strategy sees to it that each has a folder.
    backup = tf_keras.callbacks.BackupAndRestore(str(folder / "backup"), delete_checkpoint=False)
    model.fit(
        data.with_options(sharding),
        steps_per_epoch=steps,
        epochs=options["epochs"],
        callbacks=[backup, clock],
        verbose=0,
    )
    # All workers save, as saving is collective; only the chief's model is kept.
    with tempfile.TemporaryDirectory() as other:
        model.save(folder / "model.keras" if ctx.job_name == "chief" else Path(other) / "model.keras")
    if ctx.job_name == "chief":
        later = len(clock.ends) - 1  # epochs after the first, which compiles; none where all were done before
        speed = None
        if later > 0:
            seconds = clock.ends[-1] - clock.ends[0] - later * options["pause"]
            speed = later * steps * options["batch"] / seconds
        results = {"epochs": len(clock.ends), "images_per_second": speed}
        (folder / "speed.json").write_text(json.dumps(results))


def main():
    from pyspark.sql import SparkSession
    from tensorflowonspark import TFCluster

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--executors", type=int, default=2, help="executors of Spark, each with one core")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=60, help="images of one step, over all executors")
    parser.add_argument("--rate", type=float, default=0.005, help="learning rate")
    parser.add_argument(
        "--pause", type=float, default=0.0, help="seconds after each epoch, to have time to look"
    )
    parser.add_argument(
        "--folder", type=Path, default=Path("results"), help="for the backup and the model; default: results"
    )
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    spark = (
        SparkSession.builder.appName("tfos_tensorflow")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    settings = {**vars(options), "folder": str(options.folder.resolve())}
    cluster = TFCluster.run(
        spark.sparkContext,
        train,
        settings,
        num_executors=options.executors,
        num_ps=0,
        input_mode=TFCluster.InputMode.TENSORFLOW,
        master_node="chief",
    )
    cluster.shutdown()  # waits for the end of training; after an error it ends this program with 1
    spark.stop()

    import tf_keras
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    model = tf_keras.models.load_model(options.folder / "model.keras")
    _, accuracy = model.evaluate(images[TRAINING:] / 16.0, labels[TRAINING:], verbose=0)
    results = json.loads((options.folder / "speed.json").read_text())
    if not results["epochs"]:
        print(f"{options.folder} has all {options.epochs} epochs already: --epochs or --folder for more")
    if results["images_per_second"]:
        print(f"images/sec: {results['images_per_second']:.0f}")
    print(f"accuracy: {accuracy:.3f}")


if __name__ == "__main__":
    main()
