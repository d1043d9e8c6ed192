"""Trains the same small network on scikit-learn's digits with every interface, and saves the final weights.

    train_digits.py FIRST OUT [INTERFACE...]

FIRST is the package imported first, `ddl` or `tensorflow`. Under a launcher each rank takes its part of every
global batch, and starts from weights of its own; without one a single process takes the whole batch. Nothing
else differs, and no call to DDL is made in the training, but to accumulate gradients: what makes the ranks
agree is `import ddl` alone.
"""

# ruff: noqa: E402 - the order of the imports is what is tested
import os
import sys

FIRST, OUT, INTERFACES = sys.argv[1], sys.argv[2], sys.argv[3:]
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if FIRST == "ddl":
    import ddl
import keras
import tensorflow as tf
import tf_keras

if FIRST == "tensorflow":
    import ddl

import numpy as np
from ddl.tensorflow import GradientAccumulator
from sklearn.datasets import load_digits

if not ddl.is_initialized():  # DDL_AUTO_INIT=0: initialised late, when the frameworks are there already
    ddl.init()
RANK, SIZE = ddl.rank(), ddl.size()
DEVICES = ["CPU:0", "CPU:1"]
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration() for _ in DEVICES]
)
#: Above 1 in a single process that trains on the first part of each batch only.
PARTS = int(os.environ.get("ONLY_FIRST_PART_OF", SIZE))
GLOBAL_BATCH, STEPS = 96, 15
SEED = 20 + 1000 * RANK


def batches():
    """Yields this rank's part of each global batch."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).astype(np.float32)
    order = np.random.default_rng(7).permutation(len(images))
    part = GLOBAL_BATCH // PARTS
    for step in range(STEPS):
        chosen = order[step * GLOBAL_BATCH : (step + 1) * GLOBAL_BATCH]
        mine = chosen[RANK * part : (RANK + 1) * part]
        yield images[mine], labels[mine].astype(np.int64)


def dataset():
    """The batches as Keras' fit takes them, for one epoch."""
    xs, ys = zip(*batches(), strict=True)
    examples = tf.data.Dataset.from_tensor_slices((np.concatenate(xs), np.concatenate(ys)))
    return examples.batch(GLOBAL_BATCH // PARTS)


def tf1():
    """A TF1 graph and session with momentum."""
    return _tf1(
        lambda loss: tf.compat.v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss), use_resource=False
    )


def tf1_accumulation():
    """The same with an update after every third batch."""

    def train(loss):
        optimizer = tf.compat.v1.train.MomentumOptimizer(0.2, 0.9)
        return GradientAccumulator(3, optimizer.apply_gradients).minimize(loss)

    return _tf1(train, use_resource=True)


def _tf1(make_train, use_resource):
    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        v1.set_random_seed(SEED)
        x, y = v1.placeholder(tf.float32, [None, 64]), v1.placeholder(tf.int64, [None])
        kernel1 = v1.get_variable("kernel1", [64, 24], use_resource=use_resource)
        bias1 = v1.get_variable("bias1", [24], initializer=v1.random_normal_initializer())
        kernel2 = v1.get_variable("kernel2", [24, 10])
        hidden = tf.nn.relu(x @ kernel1 + bias1)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=hidden @ kernel2)
        loss = tf.reduce_mean(losses)
        train = make_train(loss)
        initialise = tf.group(v1.global_variables_initializer(), v1.local_variables_initializer())
        graph.finalize()
        with v1.Session() as session:
            session.run(initialise)
            for images, labels in batches():
                session.run(train, {x: images, y: labels})
            return session.run([kernel1, bias1, kernel2])


def _layers(library):
    library.utils.set_random_seed(SEED)
    shape = {"input_shape": (64,)} if library is tf_keras else {}
    return [
        library.layers.Reshape((8, 8, 1), **shape),
        library.layers.Conv2D(6, 3, activation="relu"),
        library.layers.Flatten(),
        library.layers.Dense(10, bias_initializer="random_normal"),
    ]


def _fit(library, optimizer):
    model = library.Sequential(_layers(library))
    loss = library.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss)
    model.fit(dataset(), verbose=0)
    return model.get_weights()


def tf_keras_fit():
    """tf_keras, model.fit, Adam."""
    return _fit(tf_keras, tf_keras.optimizers.Adam(0.01))


def tf_keras_legacy_fit():
    """tf_keras, model.fit, a legacy optimizer with momentum and gradient clipping."""
    return _fit(tf_keras, tf_keras.optimizers.legacy.SGD(0.1, momentum=0.9, clipnorm=0.5))


def tf_keras_legacy_loop():
    """tf_keras, a legacy optimizer's minimize in eager execution."""
    model = tf_keras.Sequential(_layers(tf_keras))
    optimizer = tf_keras.optimizers.legacy.Adam(0.01)
    loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    for images, labels in batches():
        optimizer.minimize(lambda x=images, y=labels: loss(y, model(x)), lambda: model.trainable_variables)
    return model.get_weights()


def keras3_fit():
    """Keras 3, model.fit, Adam; the model has no input shape and is built by the first batch."""
    return _fit(keras, keras.optimizers.Adam(0.01))


def keras3_two_devices_fit():
    """Keras 3 on a strategy of TensorFlow, with two devices in each rank."""
    with tf.distribute.MirroredStrategy(DEVICES).scope():
        return _fit(keras, keras.optimizers.SGD(0.1, momentum=0.9))


def tf_keras_two_devices_fit():
    """tf_keras likewise."""
    with tf.distribute.MirroredStrategy(DEVICES).scope():
        return _fit(tf_keras, tf_keras.optimizers.SGD(0.1, momentum=0.9))


def keras3_accumulation_fit():
    """Keras 3, model.fit, momentum, accumulation over 3 batches, clipping, weight decay, moving average."""
    return _fit(
        keras,
        keras.optimizers.SGD(
            0.1,
            momentum=0.9,
            global_clipnorm=0.5,
            weight_decay=0.01,
            gradient_accumulation_steps=3,
            use_ema=True,
        ),
    )


def tf_keras_accumulation_fit():
    """tf_keras, model.fit, an update after every third batch."""
    return _fit(tf_keras, ddl.accumulate_gradients(tf_keras.optimizers.Adam(0.01), 3))


def tf_keras_legacy_accumulation_fit():
    """The same with a legacy optimizer."""
    optimizer = tf_keras.optimizers.legacy.SGD(0.1, momentum=0.9)
    return _fit(tf_keras, ddl.accumulate_gradients(optimizer, 3))


def tape_and_accumulator():
    """A tf.function that updates after every third batch, by a Keras 3 optimizer."""
    model = keras.Sequential(_layers(keras))
    optimizer = keras.optimizers.Adam(0.01)
    accumulator = GradientAccumulator(3, lambda pairs: optimizer.apply_gradients(pairs))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def step(images, labels):
        with tf.GradientTape() as tape:
            value = loss(labels, model(images, training=True))
        gradients = tape.gradient(value, model.trainable_variables)
        return accumulator.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    stepped = [bool(step(images, labels)) for images, labels in batches()]
    assert stepped == [False, False, True] * (STEPS // 3), stepped
    return model.get_weights()


def _embedding_fit(library, optimizer):
    """Each picture as a text of 64 words out of 17: the gradient of the embedding is sparse."""
    library.utils.set_random_seed(SEED)
    length = {"input_length": 64} if library is tf_keras else {}
    layers = library.layers
    model = library.Sequential([layers.Embedding(17, 3, **length), layers.Flatten(), layers.Dense(10)])
    model.compile(optimizer, library.losses.SparseCategoricalCrossentropy(from_logits=True))
    words = dataset().map(lambda images, labels: (tf.cast(images * 16, tf.int32), labels))
    model.fit(words, verbose=0)
    return model.get_weights()


def keras3_embedding_fit():
    """Keras 3, an embedding, Adam."""
    return _embedding_fit(keras, keras.optimizers.Adam(0.01))


def tf_keras_embedding_fit():
    """tf_keras, an embedding, momentum."""
    return _embedding_fit(tf_keras, tf_keras.optimizers.SGD(0.1, momentum=0.9))


def tape_and_optimizer():
    """A loop with tf.GradientTape in a tf.function, updated by a Keras 3 optimizer."""
    model = keras.Sequential(_layers(keras))
    optimizer = keras.optimizers.RMSprop(0.003)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def step(images, labels):
        with tf.GradientTape() as tape:
            value = loss(labels, model(images, training=True))
        gradients = tape.gradient(value, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    for images, labels in batches():
        step(images, labels)
    return model.get_weights()


def tape_and_tf1_optimizer():
    """An eager loop with tf.GradientTape, updated by an optimizer of tf.compat.v1.train."""
    tf.random.set_seed(SEED)
    kernel = tf.Variable(tf.random.normal([64, 10]), name="kernel")
    bias = tf.Variable(tf.random.normal([10]), name="bias")
    optimizer = tf.compat.v1.train.AdagradOptimizer(0.1)
    for images, labels in batches():
        with tf.GradientTape() as tape:
            logits = images @ kernel + bias
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        optimizer.apply_gradients(zip(tape.gradient(loss, [kernel, bias]), [kernel, bias], strict=True))
    return [kernel.numpy(), bias.numpy()]


def main():
    """Runs the interfaces and saves the weights of this rank."""
    weights = {}
    for name in INTERFACES:
        for index, array in enumerate(globals()[name]()):
            weights[f"{name}/{index}"] = array
    np.savez(f"{OUT}/rank{RANK}of{SIZE}.npz", **weights)


main()
