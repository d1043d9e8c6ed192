"""Mixed precision of 2021: the loss is scaled, and the gradients are unscaled by LossScaleOptimizer."""

import digits
import horovod.tensorflow as hvd
import tensorflow as tf
from tensorflow.keras import layers, mixed_precision

hvd.init()
mixed_precision.set_global_policy("mixed_float16")
tf.keras.utils.set_random_seed(80 + hvd.rank())
inputs = tf.keras.Input(shape=(64,), name="digits")
x = layers.Dense(48, activation="relu", name="dense_1")(inputs)
x = layers.Dense(10, name="dense_logits")(x)
outputs = layers.Activation("softmax", dtype="float32", name="predictions")(x)
model = tf.keras.Model(inputs=inputs, outputs=outputs)
optimizer = mixed_precision.LossScaleOptimizer(tf.keras.optimizers.SGD(0.2, momentum=0.5))
loss_object = tf.keras.losses.SparseCategoricalCrossentropy()
hvd.broadcast_variables(model.variables, root_rank=0)


@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        predictions = model(x)
        loss = loss_object(y, predictions)
        scaled_loss = optimizer.get_scaled_loss(loss)
    tape = hvd.DistributedGradientTape(tape, compression=hvd.Compression.fp16)
    scaled_gradients = tape.gradient(scaled_loss, model.trainable_variables)
    gradients = optimizer.get_unscaled_gradients(scaled_gradients)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return loss


images, labels = digits.load()
losses = []
for step in range(50):
    rows = digits.part(step, hvd.rank(), hvd.size())
    losses.append(float(train_step(images[rows], labels[rows])))
digits.save(
    hvd.rank(), {f"w{i}": variable.numpy() for i, variable in enumerate(model.trainable_variables)}, losses
)
