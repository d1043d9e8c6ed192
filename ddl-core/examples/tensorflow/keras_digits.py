"""A Keras script made distributed by `import ddl`: handwritten digits, one program for 1 or many ranks.

Run it:  ddlrun -np 2 python keras_digits.py
"""

import argparse
from pathlib import Path

import ddl  # 1. the line that makes it distributed: same start, averaged gradients
import keras
import tensorflow as tf
from sklearn.datasets import load_digits

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--batch", type=int, default=64, help="images of one step, over all ranks")
parser.add_argument("--rate", type=float, default=2e-3, help="learning rate of a single process")
parser.add_argument("--folder", type=Path, help="for checkpoints and logs; none are written without it")
parser.add_argument("--device", choices=("cpu", "gpu"), help="what computes; a GPU where there is one")
parser.add_argument("--use_fp16", action="store_true", help="compute in float16, with the loss scaled")
options = parser.parse_args()
gpus = tf.config.list_physical_devices("GPU")
if options.device == "gpu" and not gpus:
    raise SystemExit("--device=gpu: TensorFlow sees no GPU; install powerai-gpu, or use --device=cpu")
if options.device == "cpu":
    tf.config.set_visible_devices([], "GPU")
if options.use_fp16:  # weights stay float32, and the optimizer scales the loss by a factor that it adapts
    keras.mixed_precision.set_global_policy("mixed_float16")
keras.utils.set_random_seed(1 + ddl.rank())

images, labels = load_digits(return_X_y=True)
images = (images / 16.0).astype("float32").reshape(-1, 8, 8, 1)
# 2. disjoint data, equally much on every rank; the last 297 images are kept for the test
train_images, train_labels = ddl.shard((images[:1500], labels[:1500]))
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
model.compile(
    optimizer=keras.optimizers.Adam(options.rate),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
callbacks = [
    ddl.DDLCallback(),
    # 3. the learning rate of many ranks, reached gradually; Adam takes the square root of their number
    ddl.LearningRateWarmupCallback(options.rate, warmup_epochs=2, multiplier=ddl.size() ** 0.5),
]
if options.folder is not None:
    # 4. checkpoints and logs are written by rank 0 alone
    if ddl.rank() == 0:
        options.folder.mkdir(parents=True, exist_ok=True)
    callbacks += [
        ddl.DDLModelCheckpoint(options.folder / "digits.keras"),
        ddl.on_rank_0(keras.callbacks.CSVLogger(str(options.folder / "digits.csv"))),
    ]
model.fit(
    train_images,
    train_labels,
    batch_size=ddl.per_rank_batch_size(options.batch),
    epochs=options.epochs,
    callbacks=[*callbacks, ddl.DDLGlobalVariablesCallback()],
    verbose=2 if ddl.rank() == 0 else 0,
)
if ddl.rank() == 0:
    _, accuracy = model.evaluate(test_images, test_labels, verbose=0)
    print(f"ranks {ddl.size()}  test accuracy {accuracy:.3f}")
    if accuracy < 0.8:
        raise SystemExit("the model did not learn")
