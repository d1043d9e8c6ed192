"""A tf.Module with its own layers, a learning rate schedule, clipped gradients, and a saved module."""

import digits
import horovod.tensorflow as hvd
import tensorflow as tf


class Dense(tf.Module):
    def __init__(self, in_features, out_features, name=None):
        super().__init__(name=name)
        self.w = tf.Variable(tf.random.normal([in_features, out_features]) / in_features**0.5, name="w")
        self.b = tf.Variable(tf.zeros([out_features]), name="b")

    @tf.Module.with_name_scope
    def __call__(self, x):
        return tf.matmul(x, self.w) + self.b


class MLP(tf.Module):
    def __init__(self, input_size, sizes, name=None):
        super().__init__(name=name)
        self.layers = []
        with self.name_scope:
            for size in sizes:
                self.layers.append(Dense(input_size, size))
                input_size = size
        self.steps = tf.Variable(0, trainable=False, name="steps")

    @tf.function(input_signature=[tf.TensorSpec([None, 64], tf.float32)])
    def __call__(self, x):
        for layer in self.layers[:-1]:
            x = tf.nn.swish(layer(x))
        return self.layers[-1](x)


def train(module, steps):
    schedule = tf.keras.optimizers.schedules.PolynomialDecay(0.3, decay_steps=steps, end_learning_rate=0.05)
    optimizer = tf.keras.optimizers.SGD(learning_rate=schedule, momentum=0.5, nesterov=True)
    images, labels = digits.load()
    losses = []
    for step in range(steps):
        rows = digits.part(step, hvd.rank(), hvd.size())
        with hvd.DistributedGradientTape(tf.GradientTape(persistent=False)) as tape:
            logits = module(images[rows])
            loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels[rows], logits=logits)
            loss = tf.reduce_mean(loss)
        gradients = tape.gradient(loss, module.trainable_variables)
        gradients, _ = tf.clip_by_global_norm(gradients, 1.0)
        optimizer.apply_gradients(zip(gradients, module.trainable_variables, strict=True))
        module.steps.assign_add(1)
        losses.append(float(loss))
    return losses


if __name__ == "__main__":
    hvd.init()
    tf.random.set_seed(50 + hvd.rank())
    module = MLP(input_size=64, sizes=[32, 10], name="mlp")
    hvd.broadcast_variables(module.variables, root_rank=0)
    losses = train(module, steps=50)
    if hvd.rank() == 0:
        tf.saved_model.save(module, "module")
    hvd.broadcast_object("saved", root_rank=0)
    loaded = tf.saved_model.load("module")
    images, _ = digits.load()
    tf.debugging.assert_near(loaded(images[:8]), module(images[:8]))
    assert module.steps == 50
    digits.save(
        hvd.rank(),
        {f"w{i}": variable.numpy() for i, variable in enumerate(module.trainable_variables)},
        losses,
    )
