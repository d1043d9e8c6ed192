"""ParameterServerStrategy: a coordinator hands steps out to workers, servers have the weights.

Run it:  ddlrun -np 3 -ps 1 -tf-config chief -max-restarts 3 \\
             python parameter_server_strategy.py --folder results
"""

import argparse
import tempfile
import time
from pathlib import Path

import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=400, help="updates of the weights, by all workers together")
parser.add_argument("--batch", type=int, default=50, help="images of one step")
parser.add_argument("--rate", type=float, default=0.5)
parser.add_argument("--folder", type=Path, help="for checkpoints, seen by all hosts; needed to recover")
options = parser.parse_args()
scratch = tempfile.TemporaryDirectory()

# 1. workers and servers serve; ddlrun ends them when the coordinator has ended
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("worker", "ps"):
    server = tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id
    )
    server.join()

# 2. rank 0 is the coordinator
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
images, labels = load_digits(return_X_y=True)
images, labels = (images / 16.0).astype("float32"), labels.astype("int64")
train_images, test_images, train_labels, test_labels = train_test_split(
    images, labels, test_size=297, random_state=1
)

# 3. the weights are on the servers
with strategy.scope():
    weights = [
        tf.Variable(tf.random.stateless_uniform([64, 48], (1, 1), -0.23, 0.23)),
        tf.Variable(tf.zeros([48])),
        tf.Variable(tf.random.stateless_uniform([48, 10], (1, 2), -0.32, 0.32)),
    ]
    done = tf.Variable(0, dtype=tf.int64)


def scores_of(pictures: tf.Tensor) -> tf.Tensor:
    kernel1, bias1, kernel2 = weights
    return tf.matmul(tf.nn.relu(tf.matmul(pictures, kernel1) + bias1), kernel2)


def batches() -> tf.data.Dataset:
    """Made on every worker: each shuffles for itself."""
    data = tf.data.Dataset.from_tensor_slices((train_images, train_labels))
    return data.shuffle(1500).repeat().batch(options.batch)


@tf.function
def step(iterator):
    """Runs on whatever worker is free."""
    pictures, digits = next(iterator)
    with tf.GradientTape() as tape:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(digits, scores_of(pictures))
        loss = tf.reduce_mean(losses)
    for weight, slope in zip(weights, tape.gradient(loss, weights), strict=True):
        weight.assign_sub(options.rate * slope)
    done.assign_add(1)
    return loss


# 4. the latest checkpoint, after the loss of a server or of the coordinator
checkpoint = tf.train.Checkpoint(weights=weights, done=done)
manager = tf.train.CheckpointManager(checkpoint, str(options.folder or scratch.name), max_to_keep=2)
checkpoint.restore(manager.latest_checkpoint)
print(f"chief 0 begins at step {int(done.numpy())}", flush=True)
iterator = iter(coordinator.create_per_worker_dataset(batches))
start_time, first = time.perf_counter(), int(done.numpy())
while done.numpy() < options.steps:
    # 5. a step whose worker is lost is done by another one
    losses = [coordinator.schedule(step, args=(iterator,)) for _ in range(20)]
    coordinator.join()
    manager.save()
    print(f"chief 0 step {int(done.numpy())} loss {coordinator.fetch(losses[-1]):.3f}", flush=True)
seconds = time.perf_counter() - start_time
accuracy = float(tf.reduce_mean(tf.cast(tf.argmax(scores_of(test_images), 1) == test_labels, tf.float32)))
print(f"workers: {resolver.cluster_spec().num_tasks('worker')}")
print(f"images/sec: {(int(done.numpy()) - first) * options.batch / seconds:.0f}")
print(f"accuracy: {accuracy:.3f}", flush=True)
if accuracy < 0.85:
    raise SystemExit("the model did not learn")
