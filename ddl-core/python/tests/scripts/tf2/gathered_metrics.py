"""Options from rank 0, an all-reduce for each gradient, averaged metrics, and predictions of all ranks."""

import digits
import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

hvd.init()
config = {"units": 24, "lr": 0.3} if hvd.rank() == 0 else None
config = hvd.broadcast_object(config, root_rank=0, name="config")


def build_model(units):
    inputs = tf.keras.layers.Input((64,), name="input")
    x = tf.keras.layers.Dense(units, activation="tanh", kernel_initializer="he_normal")(inputs)
    return tf.keras.models.Model(inputs, tf.keras.layers.Dense(10, activation="softmax")(x))


def evaluate(images, labels):
    """Loss and accuracy averaged over the ranks, each of which has its part; and all predictions."""
    part = len(images) // hvd.size()
    mine = slice(hvd.rank() * part, (hvd.rank() + 1) * part)
    probabilities = model(images[mine])
    accuracy = tf.reduce_mean(tf.cast(tf.argmax(probabilities, 1) == labels[mine], tf.float32))
    loss = tf.reduce_mean(tf.keras.losses.sparse_categorical_crossentropy(labels[mine], probabilities))
    averages = [hvd.allreduce(value, name=name) for name, value in (("loss", loss), ("accuracy", accuracy))]
    return averages, hvd.allgather(tf.argmax(probabilities, 1), name="predictions")


tf.keras.utils.set_random_seed(120 + hvd.rank())
model = build_model(config["units"])
optimizer = tf.keras.optimizers.SGD(config["lr"])
hvd.broadcast_variables(model.variables, root_rank=0)
images, labels = digits.load()
losses = []
for step in range(50):
    rows = digits.part(step, hvd.rank(), hvd.size())
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(
            tf.keras.losses.sparse_categorical_crossentropy(labels[rows], model(images[rows]))
        )
    gradients = tape.gradient(loss, model.trainable_variables)
    averaged = [hvd.allreduce(g, op=hvd.Average, name=f"grad{i}") for i, g in enumerate(gradients)]
    optimizer.apply_gradients(zip(averaged, model.trainable_variables, strict=True))
    losses.append(float(loss))
(loss, accuracy), predictions = evaluate(images[1536:1792], labels[1536:1792])
assert accuracy > 0.7 and predictions.shape == (256,), (accuracy, predictions.shape)
np.testing.assert_allclose(np.mean(predictions == labels[1536:1792]), accuracy, rtol=1e-6)
everyone = hvd.allgather_object({"rank": hvd.rank(), "last": losses[-1]})
assert [entry["rank"] for entry in everyone] == list(range(hvd.size()))
weights = {f"w{i}": value for i, value in enumerate(model.get_weights())}
digits.save(hvd.rank(), weights | {"predictions": predictions.numpy()}, losses)
