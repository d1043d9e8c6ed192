"""A Keras script made distributed by Horovod: handwritten digits, for 1 or many ranks.

Run it:  ddlrun -np 2 python keras_digits.py
"""

import argparse
import os
from pathlib import Path

import horovod.keras as hvd
import keras
import tensorflow as tf
from sklearn.datasets import load_digits

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--batch", type=int, default=64, help="images of one step, over all ranks")
parser.add_argument("--rate", type=float, default=2e-3, help="learning rate of a single process")
parser.add_argument("--folder", type=Path, help="for checkpoints; none are written without it")
parser.add_argument("--device", choices=("cpu", "gpu"), help="what computes; a GPU where there is one")
parser.add_argument("--use_fp16", action="store_true", help="compute in float16, with the loss scaled")
options = parser.parse_args()
gpus = tf.config.list_physical_devices("GPU")
if options.device == "gpu" and not gpus:
    raise SystemExit("--device=gpu: TensorFlow sees no GPU; install powerai-gpu, or use --device=cpu")

hvd.init()  # 1. the ranks find each other
rank, ranks = hvd.rank(), hvd.size()
if options.device == "cpu":
    tf.config.set_visible_devices([], "GPU")
elif gpus:  # each rank has a GPU of its own; ddlrun says which
    own_gpu = gpus[int(os.environ.get("DDL_LOCAL_GPU", hvd.local_rank()))]
    tf.config.set_visible_devices(own_gpu, "GPU")
    tf.config.experimental.set_memory_growth(own_gpu, True)
if options.use_fp16:  # weights stay float32, and the optimizer scales the loss by a factor that it adapts
    keras.mixed_precision.set_global_policy("mixed_float16")
keras.utils.set_random_seed(1 + rank)

images, labels = load_digits(return_X_y=True)
images = (images / 16.0).astype("float32").reshape(-1, 8, 8, 1)
# 2. disjoint data, equally much on every rank; the last 297 images are kept for the test
most = 1500 // ranks * ranks
train_images, train_labels = images[rank:most:ranks], labels[rank:most:ranks]
test_images, test_labels = images[1500:], labels[1500:]

model = keras.Sequential(
    [
        keras.layers.Input((8, 8, 1)),
        keras.layers.Conv2D(16, 3, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(10, dtype="float32"),
    ]
)
# 3. averaged gradients; Adam takes the square root of the number of ranks
optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(options.rate * ranks**0.5))
model.compile(
    optimizer=optimizer,
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
# the same start
callbacks: list[keras.callbacks.Callback] = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
if options.folder is not None and rank == 0:
    options.folder.mkdir(parents=True, exist_ok=True)
    # 4. checkpoints are written by rank 0 alone
    callbacks.append(keras.callbacks.ModelCheckpoint(options.folder / "digits.keras"))
model.fit(
    train_images,
    train_labels,
    batch_size=options.batch // ranks,
    epochs=options.epochs,
    callbacks=callbacks,
    verbose=2 if rank == 0 else 0,
)
if rank == 0:
    _, accuracy = model.evaluate(test_images, test_labels, verbose=0)
    print(f"ranks {ranks}  test accuracy {accuracy:.3f}")
    if accuracy < 0.8:
        raise SystemExit("the model did not learn")
hvd.shutdown()
