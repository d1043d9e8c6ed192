"""A functional model with two inputs and two outputs, weighted losses, and DDL's callbacks."""

import ddl
import digits
import numpy as np
from tensorflow.keras import Model, callbacks, layers, utils

utils.set_random_seed(11 + ddl.rank())
images, labels = digits.shard(ddl.rank(), ddl.size(), steps=7)
left = images.reshape(-1, 8, 8)[:, :, :4].reshape(-1, 32)
right = images.reshape(-1, 8, 8)[:, :, 4:].reshape(-1, 32)
even = (labels % 2 == 0).astype("float32")[:, None]

inputs_left = layers.Input(shape=(32,), name="left")
inputs_right = layers.Input(shape=(32,), name="right")
shared = layers.Dense(16, activation="relu", name="shared")
merged = layers.concatenate([shared(inputs_left), shared(inputs_right)])
hidden = layers.Dense(24, activation="tanh", name="hidden")(merged)
digit = layers.Dense(10, activation="softmax", name="digit")(hidden)
parity = layers.Dense(1, activation="sigmoid", name="parity")(hidden)

model = Model(inputs=[inputs_left, inputs_right], outputs=[digit, parity])
model.compile(
    optimizer="rmsprop",
    loss={"digit": "sparse_categorical_crossentropy", "parity": "binary_crossentropy"},
    loss_weights={"digit": 1.0, "parity": 0.5},
    metrics={"digit": ["accuracy"], "parity": ["accuracy"]},
)
model.optimizer.learning_rate = 0.005
history = model.fit(
    {"left": left, "right": right},
    {"digit": labels, "parity": even},
    batch_size=digits.BATCH // ddl.size(),
    epochs=8,
    shuffle=False,
    callbacks=[ddl.DDLCallback(), ddl.on_rank_0(callbacks.CSVLogger("log.csv", append=True))],
    verbose=0,
)
assert {"digit_loss", "parity_loss", "digit_accuracy"} <= set(history.history), history.history
scores, chances = model.predict([left, right], batch_size=64, verbose=0)
assert np.mean(scores.argmax(axis=1) == labels) > 0.7, history.history
assert chances.shape == (len(labels), 1)
weights = {f"w{i}": value for i, value in enumerate(model.get_weights())}
digits.save(ddl.rank(), weights, history.history["loss"])
