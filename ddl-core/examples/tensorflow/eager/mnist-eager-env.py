"""Handwritten digits in eager mode, in a loop of the script's own. DDL takes its mode from DDL_OPTIONS.

Run it:  ddlrun -np 2 python mnist-eager-env.py
"""

import argparse

import ddl  # 1. the line that makes it distributed: same start, averaged gradients
import tensorflow as tf
from wml_ce_commands import mnist

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--data_dir", help="has MNIST's idx files; without it, digits of scikit-learn")
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--batch_size", type=int, default=64, help="images of one step, over all ranks")
parser.add_argument("--learning_rate", type=float, default=2e-3, help="for one process")
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
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(10),
    ]
)
cross_entropy = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
# 3. the learning rate of many ranks; Adam takes the square root of their number
optimizer = tf.keras.optimizers.Adam(options.learning_rate * ddl.size() ** 0.5)

for epoch in range(options.epochs):
    for images, labels in dataset:
        with tf.GradientTape() as tape:
            loss = cross_entropy(labels, model(images, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    if ddl.rank() == 0:
        print(f"epoch {epoch + 1} loss {float(loss):.3f}", flush=True)

if ddl.rank() == 0:  # 4. evaluated once
    predicted = tf.argmax(model(data.test_images), axis=1)
    accuracy = float(tf.reduce_mean(tf.cast(predicted == data.test_labels, tf.float32)))
    print(f"ranks {ddl.size()}  test accuracy {accuracy:.3f}")
    if accuracy < 0.8:
        raise SystemExit("the model did not learn")
