"""Large Model Support in Keras: a deep network on handwritten digits, on 1 or many ranks.

Run it:  python keras_digits.py --lms offload
    or:  ddlrun -np 2 python keras_digits.py --lms offload
"""

import argparse
import time

import ddl
import keras
import lms
import lms.tensorflow
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--lms", choices=("off", "recompute", "offload"), default="off")
parser.add_argument("--every", type=int, default=6, help="operations in a block")
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--batch", type=int, default=100, help="images of one step, over all ranks")
parser.add_argument("--width", type=int, default=128)
parser.add_argument("--blocks", type=int, default=6)
options = parser.parse_args()
keras.utils.set_random_seed(1 + ddl.rank())

images, labels = load_digits(return_X_y=True)
images = (images / 16.0).astype("float32")
train_images, train_labels = ddl.shard((images[:1500], labels[:1500]))

inputs = keras.Input((64,))
x = keras.layers.Dense(options.width)(inputs)
for _ in range(options.blocks):
    y = keras.layers.Dense(2 * options.width)(keras.layers.LayerNormalization()(x))
    y = keras.layers.Dense(options.width)(keras.layers.Activation("gelu")(y))
    x = keras.layers.Add()([x, keras.layers.Dropout(0.1)(y)])
model = keras.Model(inputs, keras.layers.Dense(10)(x))

# What the forward pass of one step hands from operation to operation.
batch = ddl.per_rank_batch_size(options.batch)
whole = sum(int(np.prod(layer.output.shape[1:])) for layer in model.layers) * batch * 4
blocks = 0
if options.lms != "off":
    # The one line that it takes, before the first step.
    blocks = lms.tensorflow.enable(model, options.every, offload=options.lms == "offload")
model.compile(
    optimizer=keras.optimizers.Adam(1e-3),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
start_time = time.monotonic()
model.fit(
    train_images,
    train_labels,
    batch_size=batch,
    epochs=options.epochs,
    callbacks=[ddl.DDLCallback(), ddl.DDLGlobalVariablesCallback()],
    verbose=0,
)
seconds = time.monotonic() - start_time
if ddl.rank() == 0:
    _, accuracy = model.evaluate(images[1500:], labels[1500:], verbose=0)
    stats = lms.tensorflow.stats()
    total = float(sum(tf.reduce_sum(tf.cast(weight, "float64")) for weight in model.get_weights()))
    print(f"peak of saved activations: about {whole} bytes without LMS, in {blocks} blocks with it")
    if stats.moved:
        steps = options.epochs * len(train_images) // batch
        print(f"peak of what blocks keep on the host: {stats.moved // steps} bytes")
    print(f"moved to the host: {stats.moved} bytes, {stats.tensors} tensors")
    print(f"sum of weights: {total!r}")
    print(f"images/sec: {options.epochs * len(train_images) * ddl.size() / seconds:.0f}")
    print(f"accuracy: {accuracy:.2f}")
