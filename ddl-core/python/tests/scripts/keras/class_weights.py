"""Unequal classes: class_weight for arrays, then sample_weight from a generator with steps_per_epoch."""

import ddl
import digits
import numpy as np
import tensorflow as tf
from sklearn.utils.class_weight import compute_class_weight
from tensorflow.keras import initializers, layers, models, optimizers

images, labels = digits.load()
is_nine = (labels == 9).astype(np.int32)
balanced = compute_class_weight("balanced", classes=np.unique(is_nine), y=is_nine)
class_weight = dict(enumerate(balanced.astype(float)))
assert class_weight[1] > 4 > 1 > class_weight[0], class_weight


def weighted_batches(step):
    while True:
        rows = digits.part(step, ddl.rank(), ddl.size())
        yield images[rows], is_nine[rows].reshape(-1, 1), balanced[is_nine[rows]].astype("float32")
        step += 1


model = models.Sequential(
    [
        layers.Input(shape=(64,)),
        layers.Dense(16, activation="relu", kernel_initializer=initializers.HeNormal(seed=61)),
        layers.Dense(1, activation="sigmoid", kernel_initializer=initializers.GlorotNormal(seed=62)),
    ]
)
model.compile(
    optimizer=optimizers.Ftrl(learning_rate=0.3),
    loss="binary_crossentropy",
    weighted_metrics=[tf.keras.metrics.BinaryAccuracy(name="weighted")],
)
mine, classes = digits.shard(ddl.rank(), ddl.size(), steps=6)
first = model.fit(
    mine,
    (classes == 9).astype("float32"),
    batch_size=digits.BATCH // ddl.size(),
    shuffle=False,
    epochs=5,
    class_weight=class_weight,
    verbose=0,
)
second = model.fit(weighted_batches(30), steps_per_epoch=6, initial_epoch=5, epochs=9, verbose=0)
nines = model.predict(images[is_nine == 1], verbose=0)
assert np.mean(nines > 0.5) > 0.8, np.mean(nines > 0.5)
weights = {f"w{i}": value for i, value in enumerate(model.get_weights())}
digits.save(ddl.rank(), weights, first.history["loss"] + second.history["loss"])
