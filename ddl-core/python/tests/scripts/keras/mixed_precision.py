"""A policy of mixed precision with its loss scale, and weights in float32."""

import ddl
import digits
import numpy as np
from tensorflow import keras
from tensorflow.keras import layers, mixed_precision

mixed_precision.set_global_policy("mixed_float16")
keras.utils.set_random_seed(8)

inputs = keras.Input(shape=(64,), name="digits")
x = layers.Dense(48, activation="relu", name="dense_1")(inputs)
x = layers.Dense(24, activation="relu", name="dense_2")(x)
outputs = layers.Dense(10, name="dense_logits")(x)
outputs = layers.Activation("softmax", dtype="float32", name="predictions")(outputs)
model = keras.Model(inputs=inputs, outputs=outputs)
assert "float16" in str(x.dtype) and "float32" in str(outputs.dtype)
assert {np.asarray(value).dtype for value in model.get_weights()} == {np.dtype("float32")}
# So small that it overflows for no number of rows: an update that is left out would make a difference.
optimizer = keras.optimizers.SGD(0.1, momentum=0.5)
optimizer = mixed_precision.LossScaleOptimizer(optimizer, initial_scale=128)
model.compile(loss="sparse_categorical_crossentropy", optimizer=optimizer, metrics=["accuracy"])

x_train, y_train = digits.shard(ddl.rank(), ddl.size(), steps=7)
history = model.fit(
    x_train,
    y_train,
    batch_size=ddl.per_rank_batch_size(digits.BATCH),
    epochs=8,
    shuffle=False,
    callbacks=[ddl.DDLCallback()],
    verbose=2 if ddl.rank() == 0 else 0,
)
loss, accuracy = model.evaluate(x_train, y_train, verbose=0, callbacks=[ddl.DDLCallback()])
assert accuracy > 0.7, accuracy
weights = {f"w{i}": value for i, value in enumerate(model.get_weights())}
digits.save(ddl.rank(), weights, history.history["loss"])
