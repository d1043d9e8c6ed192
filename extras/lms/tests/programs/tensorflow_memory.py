"""How much memory a step takes; by the way that is the argument: off, recompute or offload."""

import resource
import sys

import keras
import lms.tensorflow
import numpy as np

ROWS, WIDTH, DEPTH = 512, 2048, 36
way = sys.argv[1]
inputs = keras.Input((WIDTH,))
x = keras.layers.LayerNormalization()(inputs)  # whose weights have gradients
for _ in range(DEPTH):
    x = keras.layers.Activation("gelu")(x)
model = keras.Model(inputs, keras.layers.Dense(1)(x))
if way != "off":
    lms.tensorflow.enable(model, 6, offload=way == "offload")
model.compile("sgd", "mse", jit_compile=False)
model.train_on_batch(np.ones((2, WIDTH), "float32"), np.ones((2, 1), "float32"))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
model.train_on_batch(np.ones((ROWS, WIDTH), "float32"), np.ones((ROWS, 1), "float32"))
# in tensors of the size of the activations
more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / (ROWS * WIDTH * 4)
print(f"tensors: {more:.1f}")
print(f"moved: {lms.tensorflow.stats().moved}")
