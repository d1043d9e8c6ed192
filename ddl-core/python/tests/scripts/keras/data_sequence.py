"""fit on a keras.utils.Sequence that mirrors its pictures, with a schedule and clipped gradients."""

import math

import ddl
import digits
import numpy as np
from tensorflow import keras


class DigitsSequence(keras.utils.Sequence):
    """Batches of a rank; every second epoch the pictures are mirrored."""

    def __init__(self, batch_size, rank, size):
        super().__init__()
        self.x, self.y = digits.shard(rank, size, steps=7)
        self.x = self.x.reshape(-1, 8, 8, 1)
        self.batch_size = batch_size
        self.epoch = 0

    def __len__(self):
        return math.ceil(len(self.x) / self.batch_size)

    def __getitem__(self, idx):
        rows = slice(idx * self.batch_size, (idx + 1) * self.batch_size)
        x = self.x[rows] if self.epoch % 2 == 0 else np.flip(self.x[rows], axis=2)
        return x, self.y[rows]

    def on_epoch_end(self):
        self.epoch += 1


keras.utils.set_random_seed(12 + ddl.rank())
train = DigitsSequence(digits.BATCH // ddl.size(), ddl.rank(), ddl.size())
model = keras.models.Sequential()
model.add(keras.layers.SeparableConv2D(12, (3, 3), padding="same", input_shape=(8, 8, 1)))
model.add(keras.layers.PReLU(shared_axes=[1, 2]))
model.add(keras.layers.Flatten())
model.add(keras.layers.Dense(32, activation="relu"))
model.add(keras.layers.Dense(10, activation="softmax"))
rate = keras.optimizers.schedules.PiecewiseConstantDecay([28, 42], [0.02, 0.01, 0.005])
opt = keras.optimizers.Adam(learning_rate=rate, clipnorm=0.5)
model.compile(opt, "sparse_categorical_crossentropy")
history = model.fit(
    train,
    epochs=8,
    shuffle=False,
    callbacks=[ddl.DDLCallback()],
    verbose=0,
)
weights = {f"w{i}": value for i, value in enumerate(model.get_weights())}
digits.save(ddl.rank(), weights, history.history["loss"])
