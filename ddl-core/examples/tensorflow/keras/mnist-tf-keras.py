"""Handwritten digits in tf.keras, the smallest distributed script: `import ddl`, and each rank its own data.

Run it:  ddlrun -np 2 python mnist-tf-keras.py
"""

import argparse

import ddl  # the line that makes it distributed: same start, averaged gradients
import tensorflow as tf
from wml_ce_commands import mnist

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--data_dir", help="has MNIST's idx files; without it, digits of scikit-learn")
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--batch_size", type=int, default=64, help="images of one step, over all ranks")
parser.add_argument("--eager", action="store_true", help="run every operation at once, without a graph")
options = parser.parse_args()
tf.keras.utils.set_random_seed(1 + ddl.rank())

data = mnist.load(options.data_dir)
model = tf.keras.Sequential(
    [
        tf.keras.layers.Input(data.train_images.shape[1:]),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(64, activation="relu"),
        tf.keras.layers.Dense(10, activation="softmax"),
    ]
)
model.compile(
    optimizer="adam",
    loss="sparse_categorical_crossentropy",
    metrics=["accuracy"],
    run_eagerly=options.eager,
)
model.fit(
    *ddl.shard((data.train_images, data.train_labels)),
    batch_size=ddl.per_rank_batch_size(options.batch_size),
    epochs=options.epochs,
    callbacks=[ddl.DDLCallback(), ddl.DDLGlobalVariablesCallback()],
    verbose=2 if ddl.rank() == 0 else 0,
)
if ddl.rank() == 0:
    _, accuracy = model.evaluate(data.test_images, data.test_labels, verbose=0)
    print(f"ranks {ddl.size()}  test accuracy {accuracy:.3f}")
    if accuracy < 0.8:
        raise SystemExit("the model did not learn")
