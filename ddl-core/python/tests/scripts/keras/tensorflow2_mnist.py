"""Horovod's form for TensorFlow 2.0: a tf.data pipeline, and experimental_run_tf_function=False."""

import os

import digits
import horovod.tensorflow.keras as hvd
import tensorflow as tf

hvd.init()
for gpu in tf.config.experimental.list_physical_devices("GPU"):
    tf.config.experimental.set_memory_growth(gpu, True)

# Of all data and shuffled alike: a rank takes its rows of each global batch.
mnist_images, mnist_labels = digits.load()
order = tf.random.stateless_uniform([1792], seed=[7, 1]).numpy().argsort()
dataset = (
    tf.data.Dataset.from_tensor_slices(
        (
            tf.cast(mnist_images[order].reshape(-1, 8, 8, 1), tf.float32),
            tf.cast(mnist_labels[order], tf.int64),
        )
    )
    .shard(hvd.size(), hvd.rank())
    .repeat()
    .batch(digits.BATCH // hvd.size())
    .prefetch(2)
)


def kernel(seed):
    return tf.keras.initializers.GlorotUniform(seed=seed)


mnist_model = tf.keras.Sequential(
    [
        tf.keras.layers.Conv2D(8, [3, 3], activation="relu", kernel_initializer=kernel(1)),
        tf.keras.layers.MaxPooling2D(pool_size=(2, 2)),
        tf.keras.layers.Dropout(0.0),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(24, activation="relu", kernel_initializer=kernel(2)),
        tf.keras.layers.Dense(10, activation="softmax", kernel_initializer=kernel(3)),
    ]
)
opt = tf.optimizers.Adam(0.01)
opt = hvd.DistributedOptimizer(opt, compression=hvd.Compression.none)
# Horovod: `run_eagerly=False` and no function of TensorFlow, so that the optimizer's own methods are called.
mnist_model.compile(
    loss=tf.losses.SparseCategoricalCrossentropy(),
    optimizer=opt,
    metrics=["accuracy"],
    experimental_run_tf_function=False,
)
callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    hvd.callbacks.MetricAverageCallback(),
]
if hvd.rank() == 0:
    folder = os.environ["OUT"]
    callbacks.append(tf.keras.callbacks.ModelCheckpoint(os.path.join(folder, "checkpoint-{epoch}.h5")))
verbose = 1 if hvd.rank() == 0 else 0
fitted = mnist_model.fit(dataset, steps_per_epoch=7, callbacks=callbacks, epochs=8, verbose=verbose)
weights = {f"w{i}": value for i, value in enumerate(mnist_model.get_weights())}
digits.save(hvd.rank(), weights, fitted.history["loss"])
