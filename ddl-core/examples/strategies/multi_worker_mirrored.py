"""MultiWorkerMirroredStrategy: TensorFlow's own all-reduce averages the gradients; with tf_keras.

Run it:  ddlrun -np 2 -tf-config worker -max-restarts 3 python multi_worker_mirrored.py --folder results
"""

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np
import tensorflow as tf
import tf_keras as keras  # Keras 3 cannot train in this strategy
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--batch", type=int, default=60, help="images of one step, over all workers")
parser.add_argument("--rate", type=float, default=0.5)
parser.add_argument("--folder", type=Path, help="for checkpoints, seen by all hosts; needed to recover")
options = parser.parse_args()
task = json.loads(os.environ.get("TF_CONFIG", '{"task": {"type": "worker", "index": 0}}'))["task"]
name = f"{task['type']} {task['index']}"

# 1. before any other operation: it waits here for all workers
strategy = tf.distribute.MultiWorkerMirroredStrategy()
is_chief = strategy.cluster_resolver.task_id in (0, None)

images, labels = load_digits(return_X_y=True)
images = (images / 16.0).astype("float32")
train_images, test_images, train_labels, test_labels = train_test_split(
    images, labels, test_size=297, random_state=1
)
# 2. every worker gets its part of each batch
distribution = tf.data.Options()
distribution.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
train = tf.data.Dataset.from_tensor_slices((train_images, train_labels))
train = train.batch(options.batch, drop_remainder=True).with_options(distribution)

# 3. the model has a copy of its weights on every worker
with strategy.scope():
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.layers.Input((64,)),
            keras.layers.Dense(48, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.SGD(options.rate),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
callbacks = [
    keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: print(f"{name} epoch {epoch} loss {logs['loss']:.3f}", flush=True)
    )
]
if options.folder is not None:
    # 4. after a failure ddlrun starts all workers again, and they continue with the next epoch
    callbacks.append(
        keras.callbacks.BackupAndRestore(str(options.folder / "backup"), delete_checkpoint=False)
    )
start_time = time.perf_counter()
history = model.fit(train, epochs=options.epochs, callbacks=callbacks, verbose=0)
seconds = time.perf_counter() - start_time

# 5. all workers have the same weights; one evaluates and saves them
if is_chief:
    scores = model(tf.constant(test_images), training=False)
    accuracy = float(tf.reduce_mean(tf.cast(tf.argmax(scores, 1) == test_labels, tf.float32)))
    if options.folder is not None:
        # the weights alone: to read a metric or the optimizer, all workers would have to take part
        np.savez(options.folder / "weights.npz", *model.get_weights())
    print(f"workers: {strategy.num_replicas_in_sync}")
    print(f"images/sec: {len(history.epoch) * 1500 / seconds:.0f}")
    print(f"accuracy: {accuracy:.3f}", flush=True)
    if accuracy < 0.85:
        raise SystemExit("the model did not learn")
