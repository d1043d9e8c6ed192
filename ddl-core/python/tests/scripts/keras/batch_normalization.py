"""Batch normalisation over the batches of all ranks, in a block with a shortcut."""

import ddl
import digits
from tensorflow import keras
from tensorflow.keras import layers

keras.utils.set_random_seed(23 + ddl.rank())


def block(x, filters):
    shortcut = layers.Conv2D(filters, 1, use_bias=False)(x)
    x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
    x = layers.BatchNormalization(momentum=0.9, synchronized=True)(x)
    x = layers.Activation("relu")(x)
    return layers.Add()([x, shortcut])


inputs = keras.Input((8, 8, 1))
outputs = block(inputs, 6)
outputs = layers.AveragePooling2D(2)(outputs)
outputs = layers.Dense(10, activation="softmax")(layers.Flatten()(outputs))
model = keras.Model(inputs, outputs)
model.compile(keras.optimizers.SGD(0.1, momentum=0.9), keras.losses.SparseCategoricalCrossentropy())
images, labels = digits.shard(ddl.rank(), ddl.size(), steps=6)
images = images.reshape(-1, 8, 8, 1)
fitted = model.fit(
    images,
    labels,
    batch_size=digits.BATCH // ddl.size(),
    epochs=8,
    shuffle=False,
    callbacks=[ddl.DDLCallback(), ddl.DDLModelCheckpoint("model.keras")],
    verbose=0,
)
weights = {f"{i}": value for i, value in enumerate(model.get_weights())}
assert len(weights) == 8
digits.save(ddl.rank(), weights, fitted.history["loss"])
