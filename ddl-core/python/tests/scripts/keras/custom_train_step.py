"""A subclass of Model with a train_step of its own, as the guide of TensorFlow 2.2 has it."""

import digits
import horovod.tensorflow as hvd
import tensorflow as tf
from tensorflow import keras

hvd.init()


class Classifier(keras.Model):
    """Two layers, and a penalty on the hidden one."""

    def __init__(self, units=24, penalty=1e-3):
        super().__init__()
        self.hidden = keras.layers.Dense(units, activation="relu")
        self.scores = keras.layers.Dense(10)
        self.penalty = penalty
        self.loss_tracker = keras.metrics.Mean(name="loss")
        self.accuracy = keras.metrics.SparseCategoricalAccuracy(name="accuracy")

    @property
    def metrics(self):
        return [self.loss_tracker, self.accuracy]

    def call(self, inputs, training=False):
        return self.scores(self.hidden(inputs))

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            logits = self(x, training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
            loss += self.penalty * tf.reduce_sum(tf.square(self.hidden.kernel))
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        self.loss_tracker.update_state(loss)
        self.accuracy.update_state(y, logits)
        return {m.name: m.result() for m in self.metrics}


images, labels = digits.shard(hvd.rank(), hvd.size(), steps=7)
keras.utils.set_random_seed(5 + hvd.rank())
model = Classifier()
model(images[:1])
hvd.broadcast_variables(model.variables, root_rank=0)
model.compile(optimizer=keras.optimizers.Adam(learning_rate=0.01))
fitted = model.fit(
    images,
    labels,
    batch_size=digits.BATCH // hvd.size(),
    epochs=8,
    shuffle=False,
    verbose=2 * (hvd.rank() == 0),
)
assert fitted.history["accuracy"][-1] > 0.8, fitted.history
weights = {f"w{i}": value.numpy() for i, value in enumerate(model.trainable_variables)}
digits.save(hvd.rank(), weights, fitted.history["loss"])
