"""Transfer: a frozen base and a new head, then both with a small rate, compiled twice."""

import ddl
import digits
import numpy as np
import tensorflow as tf

tf.keras.backend.clear_session()
images, labels = digits.shard(ddl.rank(), ddl.size(), steps=7)
batch_size = digits.BATCH // ddl.size()


def glorot(seed):
    return tf.keras.initializers.GlorotUniform(seed)


base_model = tf.keras.Sequential(
    [
        tf.keras.layers.InputLayer(input_shape=(64,)),
        tf.keras.layers.Dense(32, activation="relu", kernel_initializer=glorot(1), name="low"),
        tf.keras.layers.Dense(16, activation="relu", kernel_initializer=glorot(2), name="high"),
    ],
    name="base",
)
base_model.trainable = False
head = tf.keras.layers.Dense(10, kernel_initializer=glorot(3), name="head")
model = tf.keras.Sequential([base_model, head])


def compile_and_fit(optimizer, initial_epoch, epochs):
    model.compile(
        optimizer=optimizer,
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model.fit(
        images,
        labels,
        batch_size=batch_size,
        shuffle=False,
        initial_epoch=initial_epoch,
        epochs=epochs,
        callbacks=[ddl.DDLCallback()],
        verbose=0,
    ).history["loss"]


frozen = [value.copy() for value in base_model.get_weights()]
losses = compile_and_fit(tf.keras.optimizers.RMSprop(0.05), 0, 4)
assert len(model.trainable_variables) == 2
assert all((a == b).all() for a, b in zip(frozen, base_model.get_weights(), strict=True))

base_model.trainable = True
for layer in base_model.layers[:-1]:
    layer.trainable = False
losses += compile_and_fit(tf.keras.optimizers.SGD(0.1, momentum=0.9), 4, 8)
assert len(model.trainable_variables) == 4
low, high = base_model.get_layer("low").get_weights(), base_model.get_layer("high").get_weights()
assert (low[0] == frozen[0]).all() and not np.array_equal(high[0], frozen[2])
digits.save(ddl.rank(), {f"w{i}": v for i, v in enumerate(model.get_weights())}, losses)
