"""A subclass of Model with its own train_step, in which Horovod's tape averages; fit with metrics."""

import digits
import horovod.tensorflow as hvd
import tensorflow as tf
from tensorflow import keras

hvd.init()
loss_tracker = keras.metrics.Mean(name="loss")
acc_metric = keras.metrics.SparseCategoricalAccuracy(name="acc")


class CustomModel(keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(y, y_pred, from_logits=True))
            penalty = 1e-3 * tf.add_n([tf.nn.l2_loss(v) for v in self.trainable_variables])
            total = loss + penalty
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(total, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))  # noqa: B905
        loss_tracker.update_state(loss)
        acc_metric.update_state(y, y_pred)
        return {"loss": loss_tracker.result(), "acc": acc_metric.result()}

    def test_step(self, data):
        x, y = data
        acc_metric.update_state(y, self(x, training=False))
        return {"acc": acc_metric.result()}

    @property
    def metrics(self):
        return [loss_tracker, acc_metric]


class BroadcastOnce(keras.callbacks.Callback):
    """Gives all ranks rank 0's weights before training."""

    def on_train_begin(self, logs=None):
        hvd.broadcast_variables(self.model.variables, root_rank=0)


tf.keras.utils.set_random_seed(60 + hvd.rank())
inputs = keras.Input(shape=(64,))
hidden = keras.layers.Dense(32, activation="gelu")(inputs)
model = CustomModel(inputs, keras.layers.Dense(10)(hidden))
model.compile(optimizer=keras.optimizers.RMSprop(2e-3, epsilon=1e-4), run_eagerly=False)
images, labels = digits.shard(hvd.rank(), hvd.size(), steps=28)
history = model.fit(
    images,
    labels,
    batch_size=digits.BATCH // hvd.size(),
    epochs=6,
    shuffle=False,
    callbacks=[BroadcastOnce()],
    verbose=2 if hvd.rank() == 0 else 0,
)
accuracy = model.evaluate(*digits.load(), verbose=0, return_dict=True)["acc"]
assert accuracy > 0.8, accuracy
weights = {f"w{i}": value for i, value in enumerate(model.get_weights())}
digits.save(hvd.rank(), weights, history.history["loss"])
