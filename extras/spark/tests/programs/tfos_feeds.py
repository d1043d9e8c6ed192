"""Spark feeds workers whose weights are on a parameter server, and a stream of Spark feeds workers."""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.streaming import StreamingContext
from tensorflowonspark import TFCluster

folder = Path(sys.argv[1])


def train(options, ctx):
    """Fits y = 3 x - 2 in the way of TensorFlow 1: each worker has a graph and updates the server's weights
    with what it is fed. (The coordinator of ParameterServerStrategy makes the workers' data by itself.)"""
    import tensorflow as tf

    v1 = tf.compat.v1
    v1.disable_eager_execution()
    cluster = tf.train.ClusterSpec(ctx.cluster_spec)
    server = tf.distribute.Server(cluster, job_name=ctx.job_name, task_index=ctx.task_index)
    if ctx.job_name == "ps":
        server.join()
    with v1.device(v1.train.replica_device_setter(cluster=cluster)):
        x, y = v1.placeholder(tf.float32, [None]), v1.placeholder(tf.float32, [None])
        weight, bias = v1.get_variable("weight", initializer=0.0), v1.get_variable("bias", initializer=0.0)
        step = v1.train.get_or_create_global_step()
        loss = tf.reduce_mean(tf.square(weight * x + bias - y))
        update = v1.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)
    feed = ctx.get_data_feed(train_mode=True)
    with v1.train.MonitoredTrainingSession(server.target, is_chief=ctx.task_index == 0) as session:
        own = 0
        while not feed.should_stop():
            rows = feed.next_batch(20)
            if rows:
                session.run(update, {x: [row[0] for row in rows], y: [row[1] for row in rows]})
                own += 1
        told = {"own": own, "step": int(session.run(step)), "weights": session.run([weight, bias])}
        told["devices"] = sorted({weight.device, bias.device})
    (Path(options["folder"]) / f"fed{ctx.task_index}").write_text(json.dumps(told, default=float))


def take(options, ctx):
    """Takes numbers until there were enough of them, and ends the stream."""
    feed = ctx.get_data_feed(train_mode=True)
    numbers = []
    while not feed.should_stop() and len(numbers) < options["enough"]:
        numbers += feed.next_batch(1)
    feed.terminate()
    (Path(options["folder"]) / f"streamed{ctx.task_index}").write_text(json.dumps(numbers))


spark = (
    SparkSession.builder.config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .getOrCreate()
)
context = spark.sparkContext
common = {"input_mode": TFCluster.InputMode.SPARK, "num_executors": 3}
options = {"folder": str(folder), "enough": 30}

cluster = TFCluster.run(context, train, options, num_ps=1, **common)
rows = [(i % 20 / 10 - 1, 3 * (i % 20 / 10 - 1) - 2) for i in range(2000)]
cluster.train(context.parallelize(rows, 8), 4)
cluster.shutdown(grace_secs=2)
told = [json.loads((folder / f"fed{number}").read_text()) for number in range(2)]
print("own steps:", [one["own"] for one in told])
print("steps:", max(one["step"] for one in told))
print("weights:", json.dumps([one["weights"] for one in told]))
print("devices:", *sorted({device for one in told for device in one["devices"]}))

stream = StreamingContext(context, 1)
parts = [context.parallelize(range(30 * number, 30 * (number + 1)), 3) for number in range(8)]
cluster = TFCluster.run(context, take, options, num_ps=0, **common)
cluster.train(stream.queueStream(parts))
stream.start()
cluster.shutdown(ssc=stream)
taken = [json.loads((folder / f"streamed{number}").read_text()) for number in range(3)]
print("taken:", json.dumps(taken))
spark.stop()
