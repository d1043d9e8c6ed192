"""A loss and metrics of one's own, written with keras.backend, and load_model with custom_objects."""

import os

import digits
import horovod.keras as hvd
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import backend as K

hvd.init()


def focal_loss(gamma=2.0):
    def loss(y_true, y_pred):
        y_pred = K.clip(y_pred, K.epsilon(), 1.0 - K.epsilon())
        return K.sum(-y_true * K.pow(1.0 - y_pred, gamma) * K.log(y_pred), axis=-1)

    return loss


def certainty(y_true, y_pred):
    return K.mean(K.max(y_pred, axis=-1))


class Hits(keras.metrics.Metric):
    """Counts what was recognised."""

    def __init__(self, name="hits", **kwargs):
        super().__init__(name=name, **kwargs)
        self.count = self.add_weight(name="count", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        hit = tf.equal(tf.argmax(y_true, axis=-1), tf.argmax(y_pred, axis=-1))
        self.count.assign_add(tf.reduce_sum(tf.cast(hit, tf.float32)))

    def result(self):
        return self.count


tf.random.set_seed(6)
images, labels = digits.shard(hvd.rank(), hvd.size(), steps=7)
model = keras.Sequential(
    [keras.layers.Dense(10, activation="softmax", input_shape=(64,), kernel_initializer="ones")]
)
model.compile(
    optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(1.0)),
    loss=focal_loss(),
    metrics=[certainty, Hits()],
)
fitted = model.fit(
    images,
    keras.utils.to_categorical(labels),
    batch_size=digits.BATCH // hvd.size(),
    epochs=8,
    shuffle=False,
    callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)],
    verbose=0,
)
assert fitted.history["hits"][-1] > 0.7 * len(labels), fitted.history
path = os.path.join(os.environ["OUT"], f"model{hvd.rank()}.keras")
model.save(path)
again = keras.models.load_model(
    path, custom_objects={"loss": focal_loss(), "certainty": certainty, "Hits": Hits}
)
weights = {f"w{i}": v for i, v in enumerate(again.get_weights())}
digits.save(hvd.rank(), weights, fitted.history["loss"])
