"""Gradients are added up in variables over two passes, then averaged in one all-reduce and applied."""

import digits
import horovod.tensorflow as hvd
import tensorflow as tf


class Trainer:
    """Accumulates gradients in variables."""

    def __init__(self, model, optimizer, accum_steps):
        self.model, self.optimizer = model, optimizer
        self.accum_steps = tf.constant(accum_steps, tf.float32)
        self.gradient_accumulation = [
            tf.Variable(tf.zeros_like(v), trainable=False, synchronization=tf.VariableSynchronization.ON_READ)
            for v in model.trainable_variables
        ]
        self.loss_fn = tf.keras.losses.CategoricalCrossentropy(from_logits=True)

    @tf.function
    def accumulate(self, x, y):
        with tf.GradientTape() as tape:
            loss = self.loss_fn(y, self.model(x, training=True))
        for accumulator, gradient in zip(
            self.gradient_accumulation, tape.gradient(loss, self.model.trainable_variables), strict=True
        ):
            accumulator.assign_add(gradient / self.accum_steps)
        return loss

    @tf.function
    def apply(self):
        gradients = hvd.grouped_allreduce(
            [accumulator.read_value() for accumulator in self.gradient_accumulation], op=hvd.Average
        )
        self.optimizer.apply_gradients(zip(gradients, self.model.trainable_variables, strict=True))
        for accumulator in self.gradient_accumulation:
            accumulator.assign(tf.zeros_like(accumulator))

    def step(self, x, y):
        parts = int(self.accum_steps)
        loss = tf.reduce_mean(
            [self.accumulate(*part) for part in zip(tf.split(x, parts), tf.split(y, parts), strict=True)]
        )
        self.apply()
        return float(loss)


def main():
    hvd.init()
    tf.keras.utils.set_random_seed(70 + hvd.rank())
    model = tf.keras.models.Sequential()
    model.add(tf.keras.layers.Reshape((8, 8), input_shape=(64,)))
    model.add(tf.keras.layers.SimpleRNN(24))
    model.add(tf.keras.layers.LayerNormalization())
    model.add(tf.keras.layers.Dense(10))
    optimizer = tf.keras.optimizers.Adagrad(learning_rate=0.1)
    trainer = Trainer(model, optimizer, accum_steps=2)
    for index, variable in enumerate(model.trainable_variables):
        variable.assign(hvd.broadcast(tf.convert_to_tensor(variable), root_rank=0, name=f"weight{index}"))
    images, labels = digits.load()
    targets = tf.keras.utils.to_categorical(labels, 10)
    losses = []
    for step in range(45):
        rows = digits.part(step, hvd.rank(), hvd.size())
        losses.append(trainer.step(images[rows], targets[rows]))
    digits.save(hvd.rank(), {f"w{i}": value for i, value in enumerate(model.get_weights())}, losses)


if __name__ == "__main__":
    main()
