"""What scripts for older Horovods do: on Keras 3, or with TF_USE_LEGACY_KERAS=1 on tf_keras. Two ranks.

keras_scripts.py FOLDER, which both ranks see
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from _cases import run

LEGACY = os.environ.get("TF_USE_LEGACY_KERAS") == "1"
if LEGACY:
    import horovod.tensorflow.keras as hvd_keras
    import tf_keras as keras
else:
    import horovod.keras as hvd_keras
    import keras

FOLDER = sys.argv[1]
hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
FEATURES, BATCH, STEPS = 4, 16, 4


def data(rank):
    x = np.random.default_rng(rank).standard_normal((BATCH * STEPS, FEATURES)).astype("f4")
    return x, (x.sum(1) * (rank + 1))[:, None]


def global_batches():
    """The data of all ranks, so that a batch of one process is those of the ranks together."""
    parts = [data(rank) for rank in range(SIZE)]
    return [
        np.concatenate([part[i].reshape(STEPS, BATCH, -1) for part in parts], 1).reshape(
            SIZE * BATCH * STEPS, -1
        )
        for i in (0, 1)
    ]


def network(policy):
    keras.backend.clear_session()
    keras.mixed_precision.set_global_policy(policy)
    keras.utils.set_random_seed(7)
    return keras.Sequential([keras.layers.Input((FEATURES,)), keras.layers.Dense(3), keras.layers.Dense(1)])


def compiled(optimizer, policy="float32", **more):
    model = network(policy)
    model.compile(optimizer, keras.losses.MeanSquaredError(), **more)
    return model


def momentum():
    return keras.optimizers.SGD(0.05, momentum=0.9)


def fit(model, x, y, batch=BATCH, **more):
    model.fit(x, y, batch_size=batch, shuffle=False, verbose=0, **more)


def assert_equal_ranks(model):  # or a layer
    for rank, weights in enumerate(hvd.allgather_object(model.get_weights())):
        for mine, theirs in zip(model.get_weights(), weights, strict=True):
            np.testing.assert_array_equal(mine, theirs, err_msg=f"of rank {rank}")


def _saved(name, by_horovod):
    """A model that was trained for an epoch, saved by rank 0, by a script with or without Horovod."""
    path = os.path.join(FOLDER, f"{'horovod' if by_horovod else 'plain'}-{name}")
    model = compiled(hvd_keras.DistributedOptimizer(momentum()) if by_horovod else momentum())
    fit(model, *data(RANK if by_horovod else 0))
    if RANK == 0:
        model.save(path)
    hvd.barrier() if hasattr(hvd, "barrier") else hvd.allgather_object(0)
    return path


def _go_on(name, by_horovod):
    """As one process with all data goes on from the same file."""
    path = _saved(name, by_horovod)
    model = hvd_keras.load_model(path)
    assert int(np.array(model.optimizer.iterations)) == STEPS
    fit(model, *data(RANK))
    assert_equal_ranks(model)
    alone = keras.models.load_model(path)
    if not LEGACY and name.endswith("h5"):
        return  # Keras 3 does not go on from such a file
    fit(alone, *global_batches(), batch=SIZE * BATCH)
    for one, other in zip(model.get_weights(), alone.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def models_of_horovod_go_on():
    _go_on("model.keras", True)


def models_without_horovod_go_on():
    _go_on("model.keras", False)


def hdf5_of_horovod_goes_on():
    _go_on("model.h5", True)


def hdf5_without_horovod_goes_on():
    _go_on("model.h5", False)


def rank_0_alone_loads():
    """As in Horovod's example of ImageNet."""
    path = _saved("resumed.keras", False)
    model = hvd_keras.load_model(path) if RANK == 0 else compiled(hvd_keras.DistributedOptimizer(momentum()))
    fit(model, *data(RANK), callbacks=[hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0)])
    assert_equal_ranks(model)


def first_gradients_are_of_one_model():
    """Ranks that begin with weights of their own train as one process with those of rank 0."""
    model = compiled(hvd_keras.DistributedOptimizer(momentum()))
    model.set_weights([weight + RANK for weight in model.get_weights()])
    fit(model, *data(RANK), callbacks=[hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0)])
    alone = compiled(momentum())
    fit(alone, *global_batches(), batch=SIZE * BATCH)
    for one, other in zip(model.get_weights(), alone.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def a_rank_overflows():
    """Mixed precision: all ranks leave the same updates out. By compile(), and wrapped by the script."""
    try:
        for wraps in (False, True):
            optimizer = hvd_keras.DistributedOptimizer(keras.optimizers.SGD(0.01))
            if wraps:
                optimizer = keras.mixed_precision.LossScaleOptimizer(optimizer, initial_scale=64.0)
            model = compiled(optimizer, "mixed_float16")
            x, y = data(RANK)
            if RANK == 1:
                y[:BATCH] = x[:BATCH] = 6e4
            fit(model, x, y, callbacks=[hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0)])
            assert_equal_ranks(model)
            scaled = model.optimizer
            scale = scaled.loss_scale if LEGACY else scaled.dynamic_scale
            scales = hvd.allgather_object(float(np.array(scale)))
            assert len(set(scales)) == 1 and scales[0] < (64 if wraps else 2**15), scales
    finally:
        keras.mixed_precision.set_global_policy("float32")


def a_loop_of_tensorflow_2():
    """As in Horovod's examples: the tape, and both broadcasts after the first step."""
    model = tf.keras.Sequential([tf.keras.layers.Dense(3, activation="relu"), tf.keras.layers.Dense(2)])
    optimizer = tf.keras.optimizers.Adam(0.01 * SIZE)
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    tf.random.set_seed(RANK)

    @tf.function
    def step(x, y, is_first):
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        if is_first:
            hvd.broadcast_variables(model.variables, root_rank=0)
            hvd.broadcast_variables(optimizer.variables(), root_rank=0)
        return gradients

    for number in range(3):
        x, y = tf.random.normal([8, 4]), tf.random.uniform([8], 0, 2, tf.int32)
        gradients = step(x, y, number == 0)
    for mine, theirs in zip(*hvd.allgather_object([gradient.numpy() for gradient in gradients]), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert_equal_ranks(model)


class OwnStep(keras.Model):
    """A train_step of its own, with the tape."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, x):
        return self.dense(x)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x, training=True) - y))
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss}


def a_train_step_with_a_tape():
    model = OwnStep()
    model.compile(keras.optimizers.Adam(0.05))
    model(np.ones((1, FEATURES), "f4"))
    hvd.broadcast_variables(model.weights, root_rank=0)
    fit(model, *data(RANK))
    assert_equal_ranks(model)


def what_was_an_argument_of_compile():
    model = compiled(hvd_keras.DistributedOptimizer(momentum()), experimental_run_tf_function=False)
    fit(model, *data(RANK))
    assert_equal_ranks(model)


def seeds_stay_different():
    """broadcast_variables(model.variables) of Keras 3 has the seeds of dropout, too."""
    keras.utils.set_random_seed(RANK)
    model = keras.Sequential(
        [keras.layers.Input((FEATURES,)), keras.layers.Dense(3), keras.layers.Dropout(0.5)]
    )
    hvd.broadcast_variables(model.variables, root_rank=0)
    assert_equal_ranks(model.layers[0])
    outputs = hvd.allgather_object(np.array(model(np.ones((8, FEATURES), "f4"), training=True)))
    assert not np.array_equal(outputs[0], outputs[1])


def ranks_drift_apart():
    """A learning rate of one rank is an error, in fit and in a loop."""

    def found(train):
        try:
            train()
        except RuntimeError as error:
            assert "DDL-1-7] the ranks have drifted apart" in str(error), error
            assert "; learning rate 0.1 on rank 0, 0.4 on rank 1; " in str(error), error
            assert "MetricAverageCallback() before them" in str(error), error
            assert "DDLCallback" not in str(error), error
        else:
            raise AssertionError("accepted")

    def harm(optimizer, step):
        if RANK == 1 and step == 2:
            optimizer.learning_rate.assign(0.4)

    x, y = np.random.RandomState(RANK).randn(2, 128, FEATURES).astype("f4")
    y = y[:, :1]
    model = compiled(hvd_keras.DistributedOptimizer(keras.optimizers.SGD(0.1)))
    callbacks = [
        hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0),
        keras.callbacks.LambdaCallback(on_batch_end=lambda step, logs=None: harm(model.optimizer, step)),
    ]
    found(lambda: model.fit(x, y, 8, 1, 0, callbacks))

    # A warning: weights might be averaged by other means.
    model = compiled(keras.optimizers.SGD(0.1))
    model.fit(x, y, 8, 1, 0, [hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0)])

    looped, optimizer = compiled(keras.optimizers.SGD(0.1)), keras.optimizers.SGD(0.1)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(looped(x) - y))
        tape = hvd.DistributedGradientTape(tape)
        variables = looped.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    def loop():
        for number in range(16):
            step(*(tf.constant(data[number * 8 :][:8]) for data in (x, y)))
            if number == 0:
                hvd.broadcast_variables(looped.variables, root_rank=0)
            harm(optimizer, number)

    found(loop)


CASES = (
    models_of_horovod_go_on,
    models_without_horovod_go_on,
    hdf5_of_horovod_goes_on,
    hdf5_without_horovod_goes_on,
    rank_0_alone_loads,
    a_rank_overflows,
    a_loop_of_tensorflow_2,
    a_train_step_with_a_tape,
    what_was_an_argument_of_compile,
    seeds_stay_different,
    ranks_drift_apart,
    first_gradients_are_of_one_model,
)
run(CASES)
