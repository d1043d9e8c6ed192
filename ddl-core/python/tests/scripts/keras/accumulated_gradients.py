"""Gradients of two batches for each update, by Horovod's backward_passes_per_step."""

import digits
import horovod.tensorflow.keras as hvd
import tensorflow as tf

BACKWARD_PASSES = 2
hvd.init()
images, labels = digits.shard(hvd.rank(), hvd.size(), steps=7)
zeros = tf.keras.initializers.Zeros()
model = tf.keras.Sequential([tf.keras.layers.Dense(10, kernel_initializer=zeros, input_shape=(64,))])
optimizer = hvd.DistributedOptimizer(
    tf.keras.optimizers.SGD(0.5, momentum=0.5),
    backward_passes_per_step=BACKWARD_PASSES,
    average_aggregated_gradients=True,
    op=hvd.Average,
)
model.compile(optimizer, tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
fitted = model.fit(
    images,
    labels,
    batch_size=digits.BATCH // hvd.size(),
    epochs=8,
    shuffle=False,
    callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)],
    verbose=0,
)
weights = {f"w{i}": value for i, value in enumerate(model.get_weights())}
digits.save(hvd.rank(), weights, fitted.history["loss"])
