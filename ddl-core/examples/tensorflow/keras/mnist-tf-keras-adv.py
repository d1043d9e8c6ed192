"""Handwritten digits in tf.keras, with what a long training needs: warm-up, checkpoints, a resume, logs.

Run it:  ddlrun -np 2 python mnist-tf-keras-adv.py --folder results
"""

import argparse
from pathlib import Path

import ddl  # 1. the line that makes it distributed: same start, averaged gradients
import tensorflow as tf
from wml_ce_commands import mnist

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--data_dir", help="has MNIST's idx files; without it, digits of scikit-learn")
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--batch_size", type=int, default=64, help="images of one step, over all ranks")
parser.add_argument("--learning_rate", type=float, default=2e-3, help="for one process")
parser.add_argument("--folder", type=Path, help="for checkpoints and logs; none are written without it")
options = parser.parse_args()
tf.keras.utils.set_random_seed(1 + ddl.rank())

data = mnist.load(options.data_dir)
# 2. disjoint data: cut before shuffling, in the same order on all ranks
dataset = ddl.shard(tf.data.Dataset.from_tensor_slices((data.train_images, data.train_labels)))
batch = ddl.per_rank_batch_size(options.batch_size)
dataset = dataset.cache().shuffle(10_000, seed=ddl.rank()).batch(batch, drop_remainder=True)

model = tf.keras.Sequential(
    [
        tf.keras.layers.Input(data.train_images.shape[1:]),
        tf.keras.layers.Conv2D(16, 3, activation="relu"),
        tf.keras.layers.Conv2D(32, 3, activation="relu"),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dropout(0.2),
        tf.keras.layers.Dense(10, activation="softmax"),
    ]
)
model.compile(
    optimizer=tf.keras.optimizers.Adam(options.learning_rate),
    loss="sparse_categorical_crossentropy",
    metrics=["accuracy"],
)
callbacks = [
    ddl.DDLCallback(),  # metrics are those of all ranks
    # 3. the learning rate of many ranks, reached gradually; Adam takes the square root of their number
    ddl.LearningRateWarmupCallback(options.learning_rate, warmup_epochs=2, multiplier=ddl.size() ** 0.5),
]
if options.folder is not None:
    # 4. checkpoints and logs are written by rank 0 alone; a training that starts again goes on with them
    if ddl.rank() == 0:
        options.folder.mkdir(parents=True, exist_ok=True)
    callbacks += [
        ddl.DDLBackupAndRestore(options.folder / "backup"),
        ddl.DDLModelCheckpoint(options.folder / "mnist.keras"),
        ddl.on_rank_0(tf.keras.callbacks.CSVLogger(str(options.folder / "mnist.csv"))),
    ]
model.fit(
    dataset,
    epochs=options.epochs,
    callbacks=[*callbacks, ddl.DDLGlobalVariablesCallback()],
    verbose=2 if ddl.rank() == 0 else 0,
)
if ddl.rank() == 0:
    _, accuracy = model.evaluate(data.test_images, data.test_labels, verbose=0)
    print(f"ranks {ddl.size()}  test accuracy {accuracy:.3f}")
    if accuracy < 0.8:
        raise SystemExit("the model did not learn")
