"""Trains the same small network on scikit-learn's digits in each of Horovod's ways for TensorFlow.

    tf_training.py OUT [WAY...]

Each rank takes its part of every global batch; a single rank takes the whole batch. The final weights go to
OUT, with the number of calls that DDL made.
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# which Keras horovod.tensorflow.keras takes
os.environ["TF_USE_LEGACY_KERAS"] = "1"
import horovod.keras as hvd_keras3
import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_tf_keras
import keras
import numpy as np
import tensorflow as tf
import tf_keras
from sklearn.datasets import load_digits

OUT, WAYS = sys.argv[1], sys.argv[2:]
if any(way.startswith("tf1") for way in WAYS):
    tf.compat.v1.disable_eager_execution()
hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
#: 2 in a single process that trains on the first half of each batch only, to see how far that leads away.
PARTS = 2 if os.environ.get("ONLY_FIRST_HALF") else SIZE
GLOBAL_BATCH, STEPS = 96, 15
SEED = 20 + 1000 * RANK


def batches():
    """Yields this rank's part of each global batch."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).astype(np.float32)
    order = np.random.default_rng(7).permutation(len(images))
    part = GLOBAL_BATCH // PARTS
    for step in range(STEPS):
        mine = order[step * GLOBAL_BATCH + RANK * part :][:part]
        yield images[mine], labels[mine].astype(np.int64)


def dataset():
    """The batches as Keras' fit takes them, for one epoch."""
    xs, ys = zip(*batches(), strict=True)
    examples = tf.data.Dataset.from_tensor_slices((np.concatenate(xs), np.concatenate(ys)))
    return examples.batch(GLOBAL_BATCH // PARTS)


def tape():
    """An eager loop with Horovod's tape."""
    tf.random.set_seed(SEED)
    kernel = tf.Variable(tf.random.normal([64, 10]))
    bias = tf.Variable(tf.random.normal([10]))
    hvd.broadcast_variables([kernel, bias], root_rank=0)
    optimizer = tf_keras.optimizers.legacy.SGD(0.1, momentum=0.9)
    for images, labels in batches():
        with tf.GradientTape() as recorded:
            logits = images @ kernel + bias
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
            loss = tf.reduce_mean(losses)
        gradients = hvd.DistributedGradientTape(recorded).gradient(loss, [kernel, bias])
        optimizer.apply_gradients(zip(gradients, [kernel, bias], strict=True))
    return [kernel.numpy(), bias.numpy()]


def tf1():
    """A TF1 graph and session with Horovod's optimizer and hook."""
    v1 = tf.compat.v1
    v1.set_random_seed(SEED)
    x, y = v1.placeholder(tf.float32, [None, 64]), v1.placeholder(tf.int64, [None])
    kernel = v1.get_variable("kernel", [64, 10])
    bias = v1.get_variable("bias", [10], initializer=v1.random_normal_initializer())
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=x @ kernel + bias)
    optimizer = hvd.DistributedOptimizer(v1.train.MomentumOptimizer(0.1, 0.9))
    train = optimizer.minimize(tf.reduce_mean(losses))
    hooks = [hvd.BroadcastGlobalVariablesHook(0)]
    with v1.train.MonitoredSession(v1.train.ChiefSessionCreator(), hooks) as session:
        for images, labels in batches():
            session.run(train, {x: images, y: labels})
        return session.run([kernel, bias])


def _model(library, seed):
    library.utils.set_random_seed(seed)
    return library.Sequential(
        [
            library.layers.Input((64,)),
            library.layers.Reshape((8, 8, 1)),
            library.layers.Conv2D(6, 3, activation="relu"),
            library.layers.Flatten(),
            library.layers.Dense(10, bias_initializer="random_normal"),
        ]
    )


def _fit(library, distributed, optimizer, seed, epochs=1, callbacks=()):
    model = _model(library, seed)
    loss = library.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(distributed.DistributedOptimizer(optimizer), loss, metrics=["accuracy"])
    model.history = model.fit(dataset(), epochs=epochs, verbose=0, callbacks=list(callbacks)).history
    return model


def tf_keras_fit():
    """tf_keras, model.fit, Adam; the same start everywhere."""
    return _fit(tf_keras, hvd_tf_keras, tf_keras.optimizers.Adam(0.01), 20).get_weights()


def tf_keras_legacy_fit():
    """tf_keras, model.fit, an optimizer of the older kind with momentum; the same start everywhere."""
    return _fit(tf_keras, hvd_tf_keras, tf_keras.optimizers.legacy.SGD(0.1, momentum=0.9), 20).get_weights()


def keras3_fit():
    """Keras 3, model.fit, Adam; the same start everywhere."""
    return _fit(keras, hvd_keras3, keras.optimizers.Adam(0.01), 20).get_weights()


def keras3_accumulation_fit():
    """Keras 3, model.fit, momentum, an update after every third batch."""
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9, gradient_accumulation_steps=3)
    return _fit(keras, hvd_keras3, optimizer, 20).get_weights()


def keras3_loop():
    """Keras 3, a tf.function with a tape of TensorFlow and apply_gradients."""
    model = _model(keras, 20)
    optimizer = hvd_keras3.DistributedOptimizer(keras.optimizers.RMSprop(0.003))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def step(images, labels):
        with tf.GradientTape() as recorded:
            value = loss(labels, model(images, training=True))
        gradients = recorded.gradient(value, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    for images, labels in batches():
        step(images, labels)
    return model.get_weights()


def _with_callbacks(library, distributed, optimizer):
    """Each rank starts from weights of its own: Horovod sends those of rank 0 after the first batch."""
    callbacks = distributed.callbacks
    warmup = callbacks.LearningRateWarmupCallback(
        initial_lr=0.1, warmup_epochs=2, steps_per_epoch=STEPS, momentum_correction=False
    )
    first = [callbacks.BroadcastGlobalVariablesCallback(0), callbacks.MetricAverageCallback(), warmup]
    model = _fit(library, distributed, optimizer, SEED, 3, first)
    logs = [np.asarray(model.history[key]) for key in ("loss", "accuracy", "lr")]
    return [*model.get_weights(), *logs]


def tf_keras_callbacks():
    return _with_callbacks(tf_keras, hvd_tf_keras, tf_keras.optimizers.SGD(0.1, momentum=0.9))


def keras3_callbacks():
    return _with_callbacks(keras, hvd_keras3, keras.optimizers.SGD(0.1, momentum=0.9))


WEIGHTS = {}


def _wait_for_all():
    """A rank that ends, ends Horovod and DDL everywhere."""
    together = hvd.allreduce(tf.constant(1.0), name="together")
    if not tf.executing_eagerly():
        tf.compat.v1.Session().run(together)


def main():
    for name in WAYS:
        for index, array in enumerate(globals()[name]()):
            WEIGHTS[f"{name}/{index}"] = np.asarray(array)
    import ddl  # late: it would average the gradients once more

    WEIGHTS["ddl_calls"] = np.asarray(ddl.stats()["calls"] if ddl.is_initialized() else 0)
    _wait_for_all()
    np.savez(f"{OUT}/rank{RANK}of{SIZE}.npz", **WEIGHTS)


main()
