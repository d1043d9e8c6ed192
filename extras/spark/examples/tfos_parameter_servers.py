"""TensorFlowOnSpark with parameter servers: executors are coordinator, servers and workers.

Run it:  python -m ddl_spark --workers 3 -- python tfos_parameter_servers.py --folder results

The chief is the coordinator of tf.distribute.ParameterServerStrategy: it hands steps out to the workers, the
servers have the weights. When the chief or a worker is lost, Spark starts it again, and training goes on from
the last checkpoint. All hosts must see the folder.
"""

import argparse
import json
import time
import uuid
from pathlib import Path

TRAINING = 1500  # images; the others are the test
ROUND = 20  # steps from one checkpoint to the next


def serve(options, ctx, resolver):
    """A worker or a server. TensorFlow's never end by themselves: a server ends with TensorFlowOnSpark's
    shutdown, a worker when the chief says that training is complete."""
    import tensorflow as tf

    server = tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id
    )
    if ctx.job_name == "ps":
        server.join()
    while not (Path(options["folder"]) / options["complete"]).exists():
        time.sleep(0.5)


def train(options, ctx):
    """Runs in each executor. TF_CONFIG, set by TensorFlowOnSpark, says who the others are."""
    import tensorflow as tf
    from sklearn.datasets import load_digits

    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if ctx.job_name != "chief":
        serve(options, ctx, resolver)
        return
    folder = Path(options["folder"])
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    images, labels = load_digits(return_X_y=True)
    images, labels = (images / 16.0).astype("float32"), labels.astype("int64")

    with strategy.scope():  # on the servers
        weights = [
            tf.Variable(tf.random.stateless_uniform([64, 48], (1, 1), -0.23, 0.23)),
            tf.Variable(tf.zeros([48])),
            tf.Variable(tf.random.stateless_uniform([48, 10], (1, 2), -0.32, 0.32)),
        ]
        done = tf.Variable(0, dtype=tf.int64)

    def scores_of(pictures):
        kernel1, bias1, kernel2 = weights
        return tf.matmul(tf.nn.relu(tf.matmul(pictures, kernel1) + bias1), kernel2)

    def batches():
        """Made on every worker: each shuffles for itself."""
        data = tf.data.Dataset.from_tensor_slices((images[:TRAINING], labels[:TRAINING]))
        return data.shuffle(TRAINING).repeat().batch(options["batch"])

    @tf.function
    def step(iterator):
        """Runs on whatever worker is free."""
        pictures, digits = next(iterator)
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(digits, scores_of(pictures))
            loss = tf.reduce_mean(losses)
        for weight, slope in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(options["rate"] * slope)
        done.assign_add(1)

    checkpoint = tf.train.Checkpoint(weights=weights, done=done)
    manager = tf.train.CheckpointManager(checkpoint, str(folder / "checkpoints"), max_to_keep=2)
    checkpoint.restore(manager.latest_checkpoint)
    iterator = iter(coordinator.create_per_worker_dataset(batches))
    # Of the speed: the first round compiles, and a pause is to look at what happens.
    first, seconds = int(done.numpy()) + ROUND, 0.0
    while done.numpy() < options["steps"]:
        start_time = time.perf_counter()
        for _ in range(ROUND):
            coordinator.schedule(step, args=(iterator,))
        coordinator.join()
        seconds += time.perf_counter() - start_time if done.numpy() > first else 0.0
        manager.save()
        with (folder / "rounds.txt").open("a") as file:
            print(int(done.numpy()), file=file)
        time.sleep(options["pause"])
    correct = tf.argmax(scores_of(images[TRAINING:]), 1) == labels[TRAINING:]
    later = int(done.numpy()) - first
    results = {
        "accuracy": float(tf.reduce_mean(tf.cast(correct, tf.float32))),
        "images_per_second": later * options["batch"] / seconds if later > 0 else None,
        "servers": resolver.cluster_spec().num_tasks("ps"),
        "workers": resolver.cluster_spec().num_tasks("worker"),
    }
    (folder / "told.json").write_text(json.dumps(results))
    (folder / options["complete"]).touch()


def main():
    from pyspark.sql import SparkSession
    from tensorflowonspark import TFCluster

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--executors", type=int, default=3, help="a chief, the servers, and the workers")
    parser.add_argument("--ps", type=int, default=1, help="how many of them are servers")
    parser.add_argument(
        "--steps", type=int, default=400, help="updates of the weights, by all workers together"
    )
    parser.add_argument("--batch", type=int, default=50, help="images of one step")
    parser.add_argument("--rate", type=float, default=0.5, help="learning rate")
    parser.add_argument(
        "--pause", type=float, default=0.0, help="seconds after each 20 steps, to have time to look"
    )
    parser.add_argument(
        "--folder", type=Path, default=Path("results"), help="for the checkpoints; default: results"
    )
    options = parser.parse_args()
    if options.executors < options.ps + 2:
        parser.error(f"--executors {options.executors}: at least {options.ps + 2} for --ps {options.ps}")
    options.folder.mkdir(parents=True, exist_ok=True)
    spark = (
        SparkSession.builder.appName("tfos_parameter_servers")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    folder, complete = options.folder.resolve(), f"complete-{uuid.uuid4().hex}"
    settings = {**vars(options), "folder": str(folder), "complete": complete}
    try:
        cluster = TFCluster.run(
            spark.sparkContext,
            train,
            settings,
            num_executors=options.executors,
            num_ps=options.ps,
            input_mode=TFCluster.InputMode.TENSORFLOW,
            master_node="chief",
        )
        cluster.shutdown()  # waits for the end of training; after an error it ends this program with 1
    finally:
        (folder / complete).unlink(missing_ok=True)
    spark.stop()
    results = json.loads((folder / "told.json").read_text())
    print(f"servers: {results['servers']}")
    print(f"workers: {results['workers']}")
    if results["images_per_second"]:
        print(f"images/sec: {results['images_per_second']:.0f}")
    print(f"accuracy: {results['accuracy']:.3f}")


if __name__ == "__main__":
    main()
