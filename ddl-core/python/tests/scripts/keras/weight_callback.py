"""Callbacks of one's own that read and write weights while training: an average of weights, and norms."""

import ddl
import digits
import numpy as np
import tensorflow as tf
from tensorflow.keras.callbacks import Callback, LambdaCallback
from tensorflow.keras.layers import Activation, Dense, Reshape
from tensorflow.keras.models import Sequential


class AverageWeights(Callback):
    """Keeps an exponential moving average of the weights, which the model has when the training ends."""

    def __init__(self, decay=0.9):
        super().__init__()
        self.decay = decay
        self.shadow = None

    def on_train_batch_end(self, batch, logs=None):
        now = self.model.get_weights()
        if self.shadow is None:
            self.shadow = now
        self.shadow = [self.decay * s + (1 - self.decay) * w for s, w in zip(self.shadow, now, strict=True)]

    def on_train_end(self, logs=None):
        self.model.set_weights(self.shadow)


class NormHistory(Callback):
    """Records the largest norm of a layer on any rank, and the smallest."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.norms = []

    def on_epoch_end(self, epoch, logs=None):
        kernel, _ = self.model.get_layer(self.layer).get_weights()
        norm = np.linalg.norm(kernel).astype("float32").reshape(1)
        self.norms.append([ddl.allreduce(norm, op=op).item() for op in ("min", "max")])


tf.random.set_seed(4)
images, labels = digits.shard(ddl.rank(), ddl.size(), steps=7)
model = Sequential(name="averaged")
model.add(Reshape((64,), input_shape=(8, 8)))
model.add(Dense(10, name="scores", kernel_initializer="zeros"))
model.add(Activation("softmax"))
model.compile(tf.keras.optimizers.Adagrad(0.1), tf.keras.losses.KLDivergence())
losses = []
norms = NormHistory("scores")
model.fit(
    images.reshape(-1, 8, 8),
    tf.keras.utils.to_categorical(labels),
    batch_size=digits.BATCH // ddl.size(),
    epochs=8,
    shuffle=False,
    verbose=0,
    callbacks=[
        AverageWeights(),
        norms,
        LambdaCallback(on_batch_end=lambda batch, logs: losses.append(logs["loss"])),
    ],
)
norms = np.array(norms.norms)
assert norms.shape == (8, 2) and (norms == norms[:, :1]).all() and (np.diff(norms[:, 0]) > 0).all(), norms
digits.save(ddl.rank(), {f"w{i}": value for i, value in enumerate(model.get_weights())}, losses)
