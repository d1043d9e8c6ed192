"""EarlyStopping, CSVLogger and TensorBoard behind averaged metrics, and a score that is averaged by hand."""

import os

import digits
import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf

hvd.init()
tf.keras.utils.set_random_seed(1)
images, labels = digits.load()
x_train, y_train = digits.shard(hvd.rank(), hvd.size(), steps=8)
# Each rank validates on its half of the last rows.
held_out = np.array_split(np.arange(1597, 1797), 2)
mine = np.concatenate(held_out[hvd.rank() :: hvd.size()])
x_valid, y_valid = images[mine], labels[mine]

model = tf.keras.Sequential(
    [
        tf.keras.layers.Dense(
            48, activation="relu", input_dim=64, kernel_regularizer=tf.keras.regularizers.l2(1e-4)
        ),
        tf.keras.layers.Dense(10),
    ]
)
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.Adamax(0.02), sparse_as_dense=True)
model.compile(
    optimizer,
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=[tf.keras.metrics.SparseCategoricalAccuracy(name="acc")],
)
stop = tf.keras.callbacks.EarlyStopping(
    monitor="val_loss", mode="min", patience=0, min_delta=0.06, restore_best_weights=True, verbose=1
)
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback(), stop]
if hvd.rank() == 0:
    callbacks.append(tf.keras.callbacks.CSVLogger(os.path.join(os.environ["OUT"], "training.csv")))
    callbacks.append(tf.keras.callbacks.TensorBoard(log_dir=os.path.join(os.environ["OUT"], "logs")))
fitted = model.fit(
    x_train,
    y_train,
    batch_size=digits.BATCH // hvd.size(),
    epochs=20,
    shuffle=False,
    callbacks=callbacks,
    validation_data=(x_valid, y_valid),
    verbose=0,
)
assert 2 < len(fitted.history["val_loss"]) < 20 and stop.stopped_epoch, fitted.history
score = model.evaluate(x_valid, y_valid, verbose=0)
loss = hvd.allreduce(np.float32(score[0]), name="score")
np.testing.assert_allclose(loss, stop.best, rtol=1e-4)
weights = {f"w{i}": value for i, value in enumerate(model.get_weights())}
digits.save(hvd.rank(), weights, fitted.history["loss"])
