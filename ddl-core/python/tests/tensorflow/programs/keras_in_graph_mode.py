"""tf_keras without eager execution: training goes by a session's callables and the legacy optimizers."""

import _cases
import ddl
import numpy as np
import tensorflow as tf
import tf_keras

tf.compat.v1.disable_eager_execution()
RANK = ddl.rank()


def _train(callbacks):
    tf.compat.v1.set_random_seed(RANK)
    layers = [tf_keras.layers.Dense(8, activation="relu", input_shape=(4,)), tf_keras.layers.Dense(1)]
    model = tf_keras.Sequential(layers)
    model.compile(tf_keras.optimizers.legacy.SGD(0.1, momentum=0.9), "mse")
    start = [weight.copy() for weight in model.get_weights()]
    x = np.random.default_rng(RANK).normal(size=(64, 4)).astype("f")
    model.fit(x, x[:, :1], batch_size=8, epochs=2, verbose=0, callbacks=callbacks)
    for before, after in zip(start, model.get_weights(), strict=True):
        assert not np.array_equal(before, after)
        exact = after.astype(np.float64)
        np.testing.assert_array_equal(ddl.allreduce(exact, op="avg"), exact)


def by_import_alone():
    """The weights start and stay equal."""
    _train([])


def with_callbacks():
    """The same with DDL's callbacks, which broadcast by the session."""
    _train([ddl.DDLCallback(), ddl.DDLGlobalVariablesCallback()])


_cases.run([by_import_alone, with_callbacks])
