"""Keras 3 on JAX, which DDL does not serve: the first update of a distributed job must say so."""

import ddl
import keras
import numpy as np

assert keras.backend.backend() == "jax"


def compiled():
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


x, y = np.ones((4, 2), "f"), np.ones((4, 1), "f")
try:
    compiled().fit(x, y, verbose=0)
except ddl.DDLError as error:
    assert "jax" in str(error) and "KERAS_BACKEND" in str(error), error
    print("refused", flush=True)
else:
    print("trained", flush=True)
with ddl.keras.no_averaging():
    compiled().fit(x, y, verbose=0)
print("passed", flush=True)
