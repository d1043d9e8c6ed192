"""Blocks are computed again, and what they need comes back from the host: the weights stay the same."""

import keras
import lms.tensorflow
import numpy as np


def weights(every: int) -> list[np.ndarray]:
    keras.utils.set_random_seed(1)
    parts = [part for _ in range(4) for part in (keras.layers.Dense(16, "tanh"), keras.layers.Dropout(0.2))]
    model = keras.Sequential([keras.Input((16,)), *parts, keras.layers.Dense(1)])
    if every:
        assert lms.tensorflow.enable(model, every, offload=True) == 3
    model.compile("sgd", "mse")
    model.fit(np.ones((32, 16)), np.ones((32, 1)), batch_size=8, verbose=0)
    return model.get_weights()


for found, wanted in zip(weights(3), weights(0), strict=True):
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
assert lms.tensorflow.stats().moved > 0
