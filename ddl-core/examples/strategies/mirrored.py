"""MirroredStrategy: the GPUs of one host, or parts of its processor, in one process, with tf_keras.

Run it:  python mirrored.py
"""

import argparse
import time

import tensorflow as tf
import tf_keras as keras
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--batch", type=int, default=60, help="images of one step, over all devices")
parser.add_argument("--rate", type=float, default=0.5)
parser.add_argument("--devices", type=int, default=2, help="parts of the processor, where there is no GPU")
options = parser.parse_args()

# 1. all GPUs; without any, the processor as several devices, which shows how it works and is no faster
devices = [f"GPU:{number}" for number, _ in enumerate(tf.config.list_physical_devices("GPU"))]
if not devices:
    processor = tf.config.list_physical_devices("CPU")[0]
    parts = [tf.config.LogicalDeviceConfiguration() for _ in range(options.devices)]
    tf.config.set_logical_device_configuration(processor, parts)
    devices = [f"CPU:{number}" for number in range(options.devices)]
strategy = tf.distribute.MirroredStrategy(devices)

images, labels = load_digits(return_X_y=True)
images = (images / 16.0).astype("float32")
train_images, test_images, train_labels, test_labels = train_test_split(
    images, labels, test_size=297, random_state=1
)
train = tf.data.Dataset.from_tensor_slices((train_images, train_labels))
train = train.batch(options.batch, drop_remainder=True)

# 2. a copy of the weights on every device
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
start_time = time.perf_counter()
model.fit(train, epochs=options.epochs, verbose=0)
seconds = time.perf_counter() - start_time
scores = model(tf.constant(test_images), training=False)
accuracy = float(tf.reduce_mean(tf.cast(tf.argmax(scores, 1) == test_labels, tf.float32)))
print(f"devices: {strategy.num_replicas_in_sync}")
print(f"images/sec: {options.epochs * 1500 / seconds:.0f}")
print(f"accuracy: {accuracy:.3f}", flush=True)
if accuracy < 0.85:
    raise SystemExit("the model did not learn")
